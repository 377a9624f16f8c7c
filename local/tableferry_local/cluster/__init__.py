"""A stand-in for a ClickHouse cluster of one shard and two replicas, behind a balancer.

Two embedded servers that know nothing of each other, and a proxy before them that does what a
cluster would do with a statement:

- a request goes to one node, in turn, or to that of its connection, session or replica tag;
- what is written to a table of a Replicated engine reaches the other node after a delay: of INSERT,
  REPLACE and ATTACH PARTITION the rows, of other statements the statement;
- DDL stays on the node, but with ON CLUSTER, or in a database that stands for a Replicated one,
  each node gets it, in one order, and the answer waits for all;
- `insert_quorum`, `alter_sync`, `mutations_sync` and `lightweight_deletes_sync` wait for the other
  node, and `select_sequential_consistency` for what is on its way;
- the catalog shows Replicated engines where the servers have plain ones.

It is no cluster: there is no Keeper, and a node is told what the other one has done by the proxy
alone, so that nothing is lost or merged on the way. Each node deduplicates inserts for itself. A
write is one part of the other node, whatever it was here. `select_sequential_consistency` waits
where a server may answer with error 289, and a query of all replicas (`clusterAllReplicas`) asks
one. A node that is away stops DDL, when its time is over, and quorums, at once; with one node alone
it is as if the other had been taken out of the cluster's definition.
"""

from __future__ import annotations

from tableferry_local.cluster.replication import Cluster

__all__ = ["Cluster"]
