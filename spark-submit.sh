#!/bin/sh
# spark-submit.sh [spark-submit options] JOB [options]: sets up .venv on the first start, then runs the job with Spark.
# spark-submit.sh --setup: only sets up.
# spark-submit.sh --pack FILE: writes the Python packages that executors need into a .tar.gz, for --archives.
# Environment: ROCKETMQ_STORE_SPARK_VENV (where .venv is), ROCKETMQ_STORE_SPARK_PYTHON (the Python that makes it), JAVA_HOME.
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

if [ -n "${JAVA_HOME:-}" ]; then
    java=$JAVA_HOME/bin/java
else
    java=$(command -v java || true)
fi

# Every start but the first ends here.
if [ -f "$stamp" ] && [ -x "$venv/bin/python" ] && [ -x "$java" ] && ! [ "$root/pyproject.toml" -nt "$stamp" ] &&
    ! [ "$root/conf/delta-pom.xml" -nt "$stamp" ] && ! [ "$root/jobs/spark/environment.py" -nt "$stamp" ] &&
    IFS= read -r stamped_java <"$stamp" && [ "$java" = "$stamped_java" ]; then
    case ${1:-} in
    --setup) exit 0 ;;
    --pack) exec "$venv/bin/python" "$root/jobs/spark/packing.py" "$@" ;;
    esac
    exec "$venv/bin/python" "$main" "$@"
fi

# A Python to set up with: any of 3.10 or later.
python=
for candidate in "${ROCKETMQ_STORE_SPARK_PYTHON:-python3}" python3.13 python3.12 python3.11 python3.10 python3.14 python; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1; then
        python=$candidate
        break
    fi
done
[ -n "$python" ] || unavailable "Python 3.10 or later is needed; install it, or name it in ROCKETMQ_STORE_SPARK_PYTHON"

# Help and a wrong command line need no Java and no set-up.
for argument in "$@"; do
    case $argument in -h | --help | --version) exec "$python" "$main" "$@" ;; esac
done
[ $# -gt 0 ] || exec "$python" "$main"
case $1 in
--setup) shift ;;
--pack)
    sh "$root/spark-submit.sh" --setup || exit $?
    exec sh "$root/spark-submit.sh" "$@"
    ;;
*) ROCKETMQ_STORE_SPARK_CHECK=1 "$python" "$main" "$@" || exit $? ;;
esac

[ -x "$java" ] || unavailable "Java 17 or later is needed; install it, or set JAVA_HOME"
exec "$python" "$root/jobs/spark/environment.py" --venv "$venv" --java "$java" -- "$@"
