#!/bin/sh
# spark-submit.sh [spark-submit options] JOB [options]: sets up .venv on the first start, then runs the job with Spark.
# spark-submit.sh --setup [--from FILE]: only sets up; from a file that --bundle wrote, without a network.
# spark-submit.sh --setup --with s3: fetches the connector, too, with which Spark reads tables on S3.
# spark-submit.sh --bundle FILE: writes all that a set-up fetches into one file, for machines without a network.
# spark-submit.sh --pack FILE: writes the Python packages that executors need into a .tar.gz, for --archives.
# Environment: ROCKETMQ_STORE_SPARK_VENV (where .venv is), ROCKETMQ_STORE_SPARK_PYTHON (the Python that makes it), JAVA_HOME,
# ROCKETMQ_STORE_SPARK_WHEELS and ROCKETMQ_STORE_SPARK_JARS (directories to take packages and Delta's jars from).
set -eu

unavailable() {
    echo "error: $1" >&2
    exit 69
}

# The directory of this file, also when it is called through a link.
self=$0
while [ -h "$self" ]; do
    link=$(readlink "$self")
    case $link in /*) self=$link ;; *) self=$(dirname "$self")/$link ;; esac
done
root=$(CDPATH='' cd -P -- "$(dirname -- "$self")" && pwd)

venv=${ROCKETMQ_STORE_SPARK_VENV:-$root/.venv}
stamp=$venv/ready
main=$root/jobs/__main__.py
export PYTHONSAFEPATH=1
# Columns of a block come and go: as conf/spark-defaults.conf says for executors, their memory is kept for the next ones.
export MALLOC_TRIM_THRESHOLD_="${MALLOC_TRIM_THRESHOLD_:-134217728}" MALLOC_MMAP_THRESHOLD_="${MALLOC_MMAP_THRESHOLD_:-33554432}"

if [ -n "${JAVA_HOME:-}" ]; then
    java=$JAVA_HOME/bin/java
else
    java=$(command -v java || true)
fi

# Every start but the first ends here. Nobody looks at Java: half of the jobs need none.
if [ -f "$stamp" ] && [ -x "$venv/bin/python" ] && [ "${1:-}" != --setup ] && ! [ "$root/pyproject.toml" -nt "$stamp" ] &&
    ! [ "$root/conf/delta-pom.xml" -nt "$stamp" ] && ! [ "$root/conf/delta-jars.sha256" -nt "$stamp" ] &&
    ! [ "$root/conf/requirements/setup.txt" -nt "$stamp" ] &&
    ! [ "$root/jobs/setup/environment.py" -nt "$stamp" ] && ! [ "$root/jobs/setup/delta_jars.py" -nt "$stamp" ]; then
    case ${1:-} in
    --pack | --bundle) exec "$venv/bin/python" "$root/jobs/setup/environment.py" --venv "$venv" "$@" ;;
    esac
    exec "$venv/bin/python" "$main" "$@"
fi

# A Python to set up with: the one that is named, else the first that fits.
fits() {
    "$1" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 14))' >/dev/null 2>&1
}
python=${ROCKETMQ_STORE_SPARK_PYTHON:-}
if [ -n "$python" ]; then
    fits "$python" || unavailable "Python 3.10 to 3.14 is needed; ROCKETMQ_STORE_SPARK_PYTHON names $python"
else
    for candidate in python3 python3.13 python3.12 python3.11 python3.10 python3.14 python; do
        if fits "$candidate"; then
            python=$candidate
            break
        fi
    done
    [ -n "$python" ] || unavailable "Python 3.10 to 3.14 is needed; install it, or name it in ROCKETMQ_STORE_SPARK_PYTHON"
fi

# Help and a wrong command line need no Java and no set-up.
for argument in "$@"; do
    case $argument in -h | --help | --version) exec "$python" "$main" "$@" ;; esac
done
[ $# -gt 0 ] || exec "$python" "$main"
case $1 in
--setup)
    case "$#:${2:-}" in
    1: | 3:--from) ;;
    3:--with) ;;
    *)
        echo "error: --setup takes nothing, --from FILE, or --with s3" >&2
        exit 64
        ;;
    esac
    shift
    exec "$python" "$root/jobs/setup/environment.py" --venv "$venv" --java "$java" "$@"
    ;;
--pack | --bundle)
    sh "$root/spark-submit.sh" --setup || exit $?
    exec sh "$root/spark-submit.sh" "$@"
    ;;
*) ROCKETMQ_STORE_SPARK_CHECK=1 "$python" "$main" "$@" || exit $? ;;
esac

exec "$python" "$root/jobs/setup/environment.py" --venv "$venv" --java "$java" -- "$@"
