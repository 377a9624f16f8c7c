"""Shows invalid transfer files in Dagster's UI, as assets with a failed check."""

import hashlib
import re
from collections.abc import Sequence

import dagster as dg

from tableferry.assets.code_references import code_reference
from tableferry.assets.declaring.transfer_files import InvalidFile, invalid_file

GROUP = "invalid_transfers"
CHECK = "valid_file"


def invalid_assets(files: Sequence[InvalidFile]) -> dict[dg.AssetKey, InvalidFile]:
    """Name an asset for each file after its transfer, or else after the file."""
    assets: dict[dg.AssetKey, InvalidFile] = {}
    for file in files:
        name = re.sub(r"\W", "_", file.transfer or file.path.stem, flags=re.ASCII) or "_"
        key = dg.AssetKey([GROUP, name])
        while key in assets:  # two files with the same name
            key = dg.AssetKey([GROUP, f"{key.path[-1]}_"])
        assets[key] = file
    return assets


def invalid_definitions(files: Sequence[InvalidFile], link: str | None = None) -> dg.Definitions:
    """Build an asset with a check per file, and the sensor that fails these checks.

    Dagster definitions have no state, so the sensor records each check as failed once the code
    location has loaded. Executing a check reads the file again.

    Args:
        files: the invalid files.
        link: the URL under which people read them, see `code_reference`.
    """
    if not files:
        return dg.Definitions()
    assets = invalid_assets(files)
    return dg.Definitions(
        assets=[_spec(key, file, link) for key, file in assets.items()],
        asset_checks=[_check(key, file) for key, file in assets.items()],
        sensors=[_sensor(assets)],
    )


def _spec(key: dg.AssetKey, file: InvalidFile, link: str | None) -> dg.AssetSpec:
    first = file.problems[0]
    lines = "\n".join(
        f"- {'' if problem.path == file.path else f'{problem.path.name} '}"
        f"line {problem.line}: {problem.message}"
        for problem in file.problems
    )
    return dg.AssetSpec(
        key,
        group_name=GROUP,
        description=f"**`{file.path.name}` is not a valid transfer, and was left out.**\n\n{lines}"
        "\n\nCorrect the file, then reload the code location.",
        metadata={
            "file": dg.MetadataValue.path(file.path),
            "problems": _table(file),
            **code_reference(first.path, first.line, link),
        },
    )


def _check(key: dg.AssetKey, file: InvalidFile) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=key, name=CHECK, description="Reads the file again, and reports its problems."
    )
    def valid_file() -> dg.AssetCheckResult:
        current = invalid_file(file.path)
        if current is None:
            return dg.AssetCheckResult(
                passed=True, description="The file is valid now: reload the code location."
            )
        return dg.AssetCheckResult(
            passed=False, description=str(current), metadata={"problems": _table(current)}
        )

    return valid_file


def _sensor(assets: dict[dg.AssetKey, InvalidFile]) -> dg.SensorDefinition:
    texts = [str(file) for file in assets.values()]
    state = hashlib.blake2b("\n".join(texts).encode(), digest_size=8).hexdigest()

    @dg.sensor(
        name="invalid_transfer_files",
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Fails the checks of transfer files that are invalid.",
    )
    def invalid_transfer_files(
        context: dg.SensorEvaluationContext,
    ) -> dg.SensorResult | dg.SkipReason:
        if context.cursor == state:
            return dg.SkipReason("\n".join(texts))
        return dg.SensorResult(
            cursor=state,
            asset_events=[
                dg.AssetCheckEvaluation(
                    asset_key=key,
                    check_name=CHECK,
                    passed=False,
                    description=str(file),
                    metadata={"problems": _table(file)},
                )
                for key, file in assets.items()
            ],
            skip_reason=dg.SkipReason("\n".join(texts)),
        )

    return invalid_transfer_files


def _table(file: InvalidFile) -> dg.TableMetadataValue:
    return dg.MetadataValue.table(
        [
            dg.TableRecord({"line": problem.line, "problem": problem.message})
            for problem in file.problems
        ]
    )
