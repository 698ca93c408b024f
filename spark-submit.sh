#!/bin/sh
# spark-submit.sh [spark-submit options] JOB [options]: run a job with Spark; the first start sets up .venv.
# spark-submit.sh --setup [--from FILE] [--with EXTRA,...]: only set up, from a file of --bundle without a network, with
#   extras of conf/requirements (hdfs, rocksdb, notebooks, ...).
# spark-submit.sh --bundle FILE: write everything that a set-up downloads into one tar file.
# spark-submit.sh --pack FILE: write the Python packages for executors into one .tar.gz, for --archives.
# Environment: ROCKETMQ_STORE_SPARK_VENV (the directory in place of .venv), ROCKETMQ_STORE_SPARK_PYTHON (the Python that
# makes it), JAVA_HOME, ROCKETMQ_STORE_SPARK_WHEELS and ROCKETMQ_STORE_SPARK_JARS (directories with the packages and
# Delta's jars), ROCKETMQ_STORE_SPARK_MAVEN (the Maven repository in place of Maven Central). pip reads its own settings.
set -eu

say() { printf '%s\n' "$1" >&2; }
fail() { say "error: $2" && exit "$1"; } # EXIT-CODE MESSAGE

root=$(dirname "$(readlink -f "$0")")
conf=$root/conf
main=$root/jobs/__main__.py
venv=${ROCKETMQ_STORE_SPARK_VENV:-$root/.venv}
case $venv in /*) ;; *) venv=$PWD/$venv ;; esac
log=$venv.log
wheels=${ROCKETMQ_STORE_SPARK_WHEELS:-} jars=${ROCKETMQ_STORE_SPARK_JARS:-}
unset PYTHONHOME PIP_TARGET PIP_PREFIX PIP_ROOT
export PYTHONSAFEPATH=1 PIP_USER=0
# Workers allocate and free the columns of each block: keep that memory, as conf/spark-defaults.conf does for executors.
export MALLOC_TRIM_THRESHOLD_="${MALLOC_TRIM_THRESHOLD_:-134217728}" MALLOC_MMAP_THRESHOLD_="${MALLOC_MMAP_THRESHOLD_:-33554432}"

described() { (cd "$conf" && cat requirements/build.txt requirements/setup.txt requirements/fast.txt delta-jars.sha256) | sha256sum; }
is_ready() { [ -d "$venv/jars" ] && [ -x "$venv/bin/python" ] && [ "$(cat "$venv/ready" 2>/dev/null)" = "$(described)" ]; }

find_python() {
    named=${ROCKETMQ_STORE_SPARK_PYTHON:-}
    [ -n "$named" ] && set -- "$named" || set -- python3 python3.13 python3.12 python3.11 python3.10 python3.14 python
    for python; do
        "$python" -I -c 'import sys; sys.exit(not ((3, 10) <= sys.version_info[:2] <= (3, 14) and sys.maxsize > 2**32))' \
            >/dev/null 2>&1 && return
    done
    fail 69 "a 64-bit Python 3.10 to 3.14 is needed: install or name one in ROCKETMQ_STORE_SPARK_PYTHON${named:+, which is $named}"
}

try_pip() { # COMMAND OPTIONS...
    TMPDIR="$tmp" "$venv/bin/python" -I -m pip "$@" --no-deps --no-build-isolation --use-pep517 --require-hashes \
        --progress-bar off --disable-pip-version-check ${wheels:+--no-index --find-links "$wheels"} >>"$log" 2>&1
}
pip() { try_pip "$@" || fail 69 "pip $1: $(sed -n 's/^ *ERROR: //p' "$log" | tail -n 1) ($log; without a network: --setup --from FILE)"; }
packages() { # COMMAND OPTIONS...
    pip "$@" -r "$conf/requirements/build.txt"
    pip "$@" -r "$conf/requirements/setup.txt"
    try_pip "$@" -r "$conf/requirements/fast.txt" --only-binary :all: ||
        say "  no numba ($log): numpy alone is two to three times slower"
}

delta_jars() { # DIRECTORY
    mkdir "$1"
    grep -v '^#' "$conf/delta-jars.sha256" | while read -r _ path; do
        if [ -n "$jars" ]; then
            cp "$jars/${path##*/}" "$1"
        else
            "$venv/bin/python" -I -c 'import socket, sys, urllib.request
socket.setdefaulttimeout(60)
urllib.request.urlretrieve(*sys.argv[1:])' \
                "${ROCKETMQ_STORE_SPARK_MAVEN:-https://repo.maven.apache.org/maven2}/$path" "$1/${path##*/}"
        fi || exit
    done >>"$log" 2>&1 || fail 69 "Delta's jars: $(tail -n 1 "$log") (ROCKETMQ_STORE_SPARK_MAVEN may name a mirror, _JARS a directory)"
    sed '/^#/d; s, [^ ]*/, ,' "$conf/delta-jars.sha256" | (cd "$1" && sha256sum -c --quiet) >>"$log" 2>&1 ||
        fail 69 "a jar of Delta's is not the published one: $log names it"
}

fill() {
    : >"$log"
    say "setting up $venv (once: some 600 MB of packages, two minutes)"
    "$python" -I -m venv --clear "$venv" >>"$log" 2>&1 ||
        fail 69 "$python cannot make a virtual environment (on Debian and Ubuntu: apt install python3-venv): $(tail -n 1 "$log")"
    mkdir -p "$tmp/bundle"
    if [ -n "$from" ]; then
        tar -xof "$from" -C "$tmp/bundle" >>"$log" 2>&1 || fail 69 "$from cannot be unpacked: $(tail -n 1 "$log")"
        wheels=$tmp/bundle/wheels jars=$tmp/bundle/jars
    fi
    say '  packages'
    packages install --no-compile
    say "  Delta's jars"
    delta_jars "$venv/jars"
    say '  compiled kernels, class archive'
    {
        PYTHONPATH=$root "$venv/bin/python" -c 'from storeformat.kernels import compiled; print(compiled())'
        "$venv/bin/python" -m compileall -q -j 0 "$venv"/lib/python3.*/site-packages "$root/jobs" "$root/udfs" "$root/storeformat"
    } >>"$log" 2>&1 &
    # A short run lets the JVM archive Spark's classes: each start with this Java takes 1.5 s less.
    PYTHONPATH=$root ROCKETMQ_STORE_SPARK_KERNELS=numpy \
        SPARK_SUBMIT_OPTS="-XX:ArchiveClassesAtExit=\"$tmp/spark.jsa\" -Xlog:cds=off -Xlog:cds+dynamic=off" "$venv/bin/python" -c '
from jobs.spark.session import spark_session
with spark_session() as spark:
    spark.sparkContext.parallelize(range(2), 2).mapPartitions(list).collect()
    spark.range(8).repartition(2).groupBy("id").count().collect()' >>"$log" 2>&1 && mv "$tmp/spark.jsa" "$venv/" ||
        say "  no class archive ($log): without Java 17 or later only jobs that read little will run"
    wait $! || say "  not everything is compiled ($log): starts take longer"
    described >"$tmp/ready"
    mv "$tmp/ready" "$venv/ready"
}

set_up() ( # a subshell, for its umask and its lock
    umask 022 # others may read it
    mkdir -p "$venv" 2>/dev/null && (: >>"$log") 2>/dev/null && [ -w "$venv" ] ||
        fail 69 "this user can neither use $venv nor set it up: name another directory in ROCKETMQ_STORE_SPARK_VENV"
    [ -f "$venv/pyvenv.cfg" ] || [ -z "$(ls -A "$venv")" ] || fail 69 "$venv exists and is not a virtual environment"
    exec 9>>"$log"
    ! command -v flock >/dev/null || flock 9
    find_python
    tmp=$venv/tmp
    is_ready || fill
    mkdir -p "$tmp"
    for extra in $extras; do
        say "  extra $extra"
        pip install --no-compile -r "$conf/requirements/$extra.txt"
    done
    rm -rf "$tmp"
)

bundle() { # FILE
    packages download --dest "$tmp/wheels"
    tar -cf "$1" -C "$tmp" wheels -C "$venv" jars
}
pack() { # FILE: lib without pyspark, which executors have, and pandas, which drivers import; bin/python starts the machine's own
    mkdir "$tmp/bin"
    cat >"$tmp/bin/python" <<END
#!/bin/sh
here=\$(cd "\$(dirname "\$0")/.." && pwd)
PYTHONPATH="\$here/$(cd "$venv" && echo lib/python3.*/site-packages)\${PYTHONPATH:+:\$PYTHONPATH}" exec $(basename "$venv"/lib/python3.*) "\$@"
END
    chmod 755 "$tmp/bin/python"
    tar -czf "$1" --exclude=__pycache__ --exclude='site-packages/py4j*' --exclude='site-packages/pyspark*' \
        --exclude='site-packages/pandas*' -C "$tmp" bin -C "$venv" lib
}

from='' extras=''
case ${1:-} in
--setup)
    shift
    while [ $# -ge 2 ]; do
        case $1 in
        --from) from=$2 ;;
        --with) extras=$(echo "$2" | tr , ' ') ;;
        *) break ;;
        esac
        shift 2
    done
    [ $# = 0 ] || fail 64 '--setup takes --from FILE and --with EXTRA,...'
    for extra in $extras; do
        [ -f "$conf/requirements/$extra.txt" ] || fail 64 "there is no extra $extra in conf/requirements"
    done
    set_up
    exit
    ;;
--bundle | --pack)
    [ $# = 2 ] || fail 64 "$1 takes a file"
    is_ready || set_up
    [ ! -d "$2" ] && tmp=$(mktemp -d "$2.XXXXXX" 2>/dev/null) || fail 74 "$2 cannot be written"
    trap 'rm -rf "$tmp"' EXIT
    trap 'exit 130' HUP INT TERM
    "${1#--}" "$tmp/file" && mv -f "$tmp/file" "$2" || fail 74 "$2 cannot be written"
    exit
    ;;
esac
is_ready && exec "$venv/bin/python" "$main" "$@"
find_python
# Help and a wrong command line need no set-up.
case " $* " in '  ' | *' -h '* | *' --help '* | *' --version '*) exec "$python" "$main" "$@" ;; esac
ROCKETMQ_STORE_SPARK_CHECK=1 "$python" "$main" "$@"
set_up
exec "$venv/bin/python" "$main" "$@"
