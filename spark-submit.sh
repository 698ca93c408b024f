#!/bin/sh
# spark-submit.sh [spark-submit options] JOB [options]: sets up .venv at the first start, then runs the job with Spark.
# spark-submit.sh --setup [--from FILE] [--with EXTRA,...]: only sets up; from a file that --bundle wrote, without a network.
#   Extras are those of conf/requirements (hdfs, rocksdb, notebooks, ...).
# spark-submit.sh --bundle FILE: writes all that a set-up fetches into one file, for machines without a network.
# spark-submit.sh --pack FILE: writes the Python packages that executors need into a .tar.gz, for --archives.
# Environment: ROCKETMQ_STORE_SPARK_VENV (where .venv is), ROCKETMQ_STORE_SPARK_PYTHON (the Python that makes it), JAVA_HOME,
# ROCKETMQ_STORE_SPARK_WHEELS and ROCKETMQ_STORE_SPARK_JARS (directories to take packages and Delta's jars from),
# ROCKETMQ_STORE_SPARK_MAVEN (the Maven repository to take jars from, in place of Maven Central).
set -eu

say() { printf '%s\n' "$@" >&2; }
fail() { # EXIT-CODE WHAT [ADVICE]
    say "error: $2" ${3:+"  $3"}
    exit "$1"
}

# The directory of this file, also when it is called through a link.
self=$0
while [ -h "$self" ]; do
    link=$(readlink "$self")
    case $link in /*) self=$link ;; *) self=$(dirname "$self")/$link ;; esac
done
root=$(CDPATH='' cd -P -- "$(dirname -- "$self")" && pwd)
conf=$root/conf
main=$root/jobs/__main__.py
venv=${ROCKETMQ_STORE_SPARK_VENV:-$root/.venv}
case $venv in /*) ;; *) venv=$PWD/$venv ;; esac
unset PYTHONHOME
export PYTHONSAFEPATH=1
# Columns of a block come and go: as conf/spark-defaults.conf says for executors, their memory is kept for the next ones.
export MALLOC_TRIM_THRESHOLD_="${MALLOC_TRIM_THRESHOLD_:-134217728}" MALLOC_MMAP_THRESHOLD_="${MALLOC_MMAP_THRESHOLD_:-33554432}"

described() { (cd "$conf" && cat requirements/build.txt requirements/setup.txt requirements/fast.txt delta-jars.sha256) | sha256sum; }
is_ready() { # whoever made it, with whatever Java
    [ -f "$venv/ready" ] && [ -x "$venv/bin/python" ] || return 1
    for file in requirements/build.txt requirements/setup.txt requirements/fast.txt delta-jars.sha256; do
        if [ "$conf/$file" -nt "$venv/ready" ]; then
            [ "$(cat "$venv/ready")" = "$(described)" ]
            return
        fi
    done
}

# ------------------------------------------------------------------------------------------------------------ the set-up
pip() { # COMMAND OPTIONS...: its own settings may name an index or a proxy, but no other place to install to
    command=$1
    shift
    env -u PIP_USER -u PIP_TARGET -u PIP_PREFIX -u PIP_ROOT TMPDIR="$venv/tmp" "$venv/bin/python" -I -m pip "$command" \
        --disable-pip-version-check --progress-bar off --no-deps --no-build-isolation --use-pep517 --require-hashes \
        ${wheels:+--no-index --find-links "$wheels"} "$@" >>"$venv/pip.log" 2>&1
}
install() { # REQUIREMENTS OPTIONS...
    name=$1
    shift
    pip install --no-compile --no-user -r "$conf/requirements/$name.txt" "$@"
}
refuse_packages() {
    reason=$(grep '^ *ERROR' "$venv/pip.log" | tail -n 1)
    fail 69 "the packages could not be had: ${reason#*ERROR: }" "all that pip said: $venv/pip.log; without a network: --setup --from FILE"
}

by_maven() { # PATH DIRECTORY: where Maven is set up, its settings may know the way
    command -v mvn >/dev/null || return 1
    version=${1%/*} artifact=${1%/*/*}
    group=$(echo "${artifact%/*}" | tr / .)
    mvn --batch-mode dependency:copy "-Dartifact=$group:${artifact##*/}:${version##*/}" "-DoutputDirectory=$2" \
        >"$venv/jars.log" 2>&1 </dev/null &&
        [ -f "$2/${1##*/}" ]
}
fetch_jars() { # SUMS DIRECTORY: puts those that SUMS names there, whole or not at all, if each has its bytes; 1 if one cannot be had
    new=$venv/tmp/${2##*/}
    rm -rf "$new"
    mkdir -p "$new"
    grep -v '^#' "$1" >"$new.sums"
    while read -r _ path; do
        if [ -n "$jars" ]; then
            cp "$jars/${path##*/}" "$new/" 2>/dev/null || fail 69 "$jars lacks ${path##*/}" "conf/${1##*/} says which jars are needed"
        else
            from=${ROCKETMQ_STORE_SPARK_MAVEN:-https://repo.maven.apache.org/maven2}/$path
            said=$("$venv/bin/python" -I -c 'import socket, sys, urllib.request as u
socket.setdefaulttimeout(60)
u.urlretrieve(sys.argv[1], sys.argv[2])' "$from" "$new/${path##*/}" 2>&1) || by_maven "$path" "$new" || {
                say "  $from: $(echo "$said" | tail -n 1)" \
                    '  ROCKETMQ_STORE_SPARK_MAVEN may name a mirror, ROCKETMQ_STORE_SPARK_JARS a directory that has the jars'
                return 1
            }
        fi
    done <"$new.sums"
    wrong=$(cd "$new" && sed 's, [^ ]*/, ,' "$new.sums" | sha256sum --check --quiet 2>/dev/null) ||
        fail 69 "a jar is not the published one: ${wrong%%:*}" 'it was changed on its way, or is of another version'
    rm -rf "$2" && mv "$new" "$2"
}

machine() { "$1" -I -c 'import platform as p; print("python" + ".".join(p.python_version_tuple()[:2]), p.system(), p.machine(), sep="-")'; }
unpack() { # BUNDLE: no file is written before each is known to be one that conf/ names by its SHA-256
    "$python" -I - "$1" "$venv/tmp/bundle" "$(machine "$python")" "$conf" <<'END' || exit 69
import hashlib, pathlib, re, sys, tarfile

file, to, here, conf = sys.argv[1:]
lists = [*pathlib.Path(conf, "requirements").glob("*.txt"), pathlib.Path(conf, "delta-jars.sha256")]
known = set(re.findall(r"\b[0-9a-f]{64}\b", "\n".join(path.read_text() for path in lists)))
try:
    with tarfile.open(file, "r:") as archive:
        found = []
        for entry in archive:
            name = re.fullmatch(r"bundle/([\w.-]+)/((?:wheels|jars)/[\w.+-]+)", entry.name)
            if not name or not entry.isreg() or entry.issparse() or entry.size > 1 << 30 or len(found) == 1000:
                raise ValueError(f"{entry.name} does not belong there")
            if name[1] != here:
                raise ValueError(f"it is for {name[1]}, and this is {here}")
            digest, source = hashlib.sha256(), archive.extractfile(entry)
            while block := source.read(1 << 20):
                digest.update(block)
            if digest.hexdigest() not in known:
                raise ValueError(f"{name[2]} is not the published one")
            found.append((entry, pathlib.Path(to, name[2])))
        for entry, path in found:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive.extractfile(entry).read())
except (tarfile.TarError, ValueError, OSError, EOFError, OverflowError) as error:
    sys.exit(f"error: {ascii(file)[1:-1]} cannot be set up from: {ascii(str(error))[1:-1]}")
END
    wheels=$venv/tmp/bundle/wheels jars=$venv/tmp/bundle/jars
}

find_python() { # the one that is named, else the first that fits
    named=${ROCKETMQ_STORE_SPARK_PYTHON:-}
    [ -n "$named" ] && set -- "$named" || set -- python3 python3.13 python3.12 python3.11 python3.10 python3.14 python
    for python; do
        "$python" -I -c 'import sys; sys.exit(not ((3, 10) <= sys.version_info[:2] <= (3, 14) and sys.maxsize > 2**32))' \
            >/dev/null 2>&1 && return
    done
    fail 69 "a 64-bit Python 3.10 to 3.14 is needed${named:+; ROCKETMQ_STORE_SPARK_PYTHON names $named}" \
        'install one, or name one in ROCKETMQ_STORE_SPARK_PYTHON'
}

set_up() { # BUNDLE EXTRAS: both may be empty
    mask=$(umask)
    umask 022 # for all who may read it
    mkdir -p "$venv" 2>/dev/null && (: >>"$venv.lock") 2>/dev/null && [ -w "$venv" ] || fail 69 "this user can neither use $venv nor set it up" \
        "its owner may let others read it, and the Python that it links to; or name another place in ROCKETMQ_STORE_SPARK_VENV"
    exec 9>>"$venv.lock"
    if command -v flock >/dev/null && ! flock -n 9; then
        say 'another start is setting things up: waiting for it'
        flock 9
    fi
    wheels=${ROCKETMQ_STORE_SPARK_WHEELS:-} jars=${ROCKETMQ_STORE_SPARK_JARS:-}
    for directory in "$wheels" "$jars"; do
        [ -z "$directory" ] || [ -d "$directory" ] || fail 69 "there is no directory $directory"
    done
    if ! is_ready; then
        fill "$1"
    elif [ ! -d "$venv/jars" ]; then
        delta_jars
    fi
    for extra in $(echo "$2" | tr , ' '); do add "$extra"; done
    rm -rf "$venv/tmp"
    umask "$mask"
    exec 9>&-
}

fill() { # BUNDLE: all from the beginning, also after one that was interrupted; the stamp comes last
    [ -f "$venv/pyvenv.cfg" ] || [ -z "$(ls -A "$venv")" ] ||
        fail 69 "$venv exists and is not a virtual environment" 'remove it, or name another place in ROCKETMQ_STORE_SPARK_VENV'
    say "setting up $venv (once: some 600 MB of packages, two minutes)"
    "$python" -I -c 'import ensurepip, venv' 2>/dev/null || fail 69 "$python cannot make a virtual environment: it has no venv and ensurepip" \
        'on Debian and Ubuntu: apt install python3-venv'
    said=$("$python" -I -m venv --clear "$venv" 2>&1) || fail 69 "$python cannot make a virtual environment: $(echo "$said" | tail -n 1)"
    mkdir "$venv/tmp"
    [ -z "$1" ] || unpack "$1"
    say '  packages'
    install build && install setup || refuse_packages
    install fast --only-binary :all: || {
        ! grep -q 'DO NOT MATCH THE HASHES' "$venv/pip.log" || refuse_packages
        say '  numba has no wheel for this machine: numpy alone is two to three times slower'
    }
    delta_jars
    say '  compiled kernels, class archive'
    {
        PYTHONPATH=$root "$venv/bin/python" -m storeformat.kernels.compile
        "$venv/bin/python" -m compileall -q -j 0 "$venv"/lib/python3.*/site-packages "$root/jobs" "$root/udfs" "$root/storeformat"
    } >"$venv/compiled.log" 2>&1 &
    # A short run of Spark lets the JVM keep Spark's classes as it wants them: 1.5 s less at every start with this Java.
    PYTHONPATH=$root ROCKETMQ_STORE_SPARK_KERNELS=numpy \
        SPARK_SUBMIT_OPTS="-XX:ArchiveClassesAtExit=\"$venv/tmp/spark.jsa\" -Xlog:cds=off -Xlog:cds+dynamic=off" "$venv/bin/python" -c '
from jobs.spark.execution import BROUGHT
from jobs.spark.session import spark_session
with spark_session(BROUGHT) as spark:
    spark.sparkContext.parallelize(range(2), 2).mapPartitions(list).collect()
    spark.range(8).repartition(2).groupBy("id").count().collect()' >"$venv/archive.log" 2>&1 && mv "$venv/tmp/spark.jsa" "$venv/" ||
        say "  no class archive ($venv/archive.log): without a Java 17 or later only jobs that read little will run"
    wait $! || say "  not all is compiled ($venv/compiled.log): starts take longer"
    described >"$venv/tmp/ready"
    mv "$venv/tmp/ready" "$venv/ready"
}

delta_jars() {
    say "  Delta's jars"
    fetch_jars "$conf/delta-jars.sha256" "$venv/jars" || say '  without them no report by Spark; --setup tries again'
}

add() { # EXTRA, unless that has been done since its description changed
    mkdir -p "$venv/tmp"
    wanted=$(cat "$conf"/requirements/*.txt | sha256sum)
    [ "$(cat "$venv/extra-$1" 2>/dev/null)" != "$wanted" ] || return 0
    say "  extra $1"
    [ -f "$conf/requirements/$1.txt" ] || fail 69 "there is no extra $1" 'conf/requirements has them'
    install "$1" || refuse_packages
    echo "$wanted" >"$venv/extra-$1"
}

# -------------------------------------------------------------------------------------------------- files for elsewhere
replacing() { # FILE COMMAND...: a command's output becomes FILE, whole or not at all
    [ ! -d "$1" ] && draft=$(mktemp "$1.XXXXXX" 2>/dev/null) || fail 74 "$1 cannot be written"
    trap 'rm -f "$draft"' EXIT
    trap 'exit 130' HUP INT TERM
    file=$1
    shift
    "$@" >"$draft" || exit
    chmod +r "$draft" && mv -f "$draft" "$file" || fail 74 "$file cannot be written"
}
bundle() {
    [ -d "$venv/jars" ] || fail 69 "Delta's jars are not there" './spark-submit.sh --setup fetches them'
    place=bundle/$(machine "$venv/bin/python") wheels=${ROCKETMQ_STORE_SPARK_WHEELS:-}
    rm -rf "$venv/tmp" && mkdir -p "$venv/tmp/$place" || exit 74
    set -- -r "$conf/requirements/build.txt" -r "$conf/requirements/setup.txt"
    [ ! -d "$venv/kernels" ] || set -- "$@" -r "$conf/requirements/fast.txt"
    pip download --dest "$venv/tmp/$place/wheels" "$@" || refuse_packages
    cp -R "$venv/jars" "$venv/tmp/$place/jars" || exit 74
    (cd "$venv/tmp" && tar -cf - "$place"/wheels/* "$place"/jars/*) || exit 74
    rm -rf "$venv/tmp"
}
pack() { # packages/, and bin/python, which runs a Python of the same version that the executor's machine has
    "$venv/bin/python" -I - "$conf/requirements" <<'END'
import gzip, importlib.metadata, io, pathlib, re, sys, tarfile

version = "%d.%d" % sys.version_info[:2]
program = f"""#!/bin/sh
here=$(CDPATH='' cd -P -- "$(dirname -- "$0")/.." && pwd)
export PYTHONPATH="$here/packages${{PYTHONPATH:+:$PYTHONPATH}}"
for candidate in python{version} python3; do
    if [ "$("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" = {version} ]; then
        exec "$candidate" "$@"
    fi
done
echo "Python {version} is needed on $(uname -n)" >&2
exit 69
""".encode()
lists = [pathlib.Path(sys.argv[1], f"{name}.txt").read_text() for name in ("setup", "fast", "hdfs", "rocksdb")]
wanted = set(re.findall(r"^([\w.-]+)==", "\n".join(lists), re.M)) - {"pyspark", "py4j", "pandas"}  # Spark brings its own
with gzip.GzipFile("", "wb", 1, sys.stdout.buffer) as packed, tarfile.open(fileobj=packed, mode="w|") as archive:
    entry = tarfile.TarInfo("bin/python")
    entry.size, entry.mode = len(program), 0o755
    archive.addfile(entry, io.BytesIO(program))
    for package in importlib.metadata.distributions():
        if re.sub("[-_.]+", "-", package.metadata["Name"]).lower() in wanted:
            for file in package.files or ():
                if file.suffix != ".pyc" and file.parts[0] != ".." and "tests" not in file.parts:
                    archive.add(str(file.locate()), f"packages/{file}", recursive=False)
END
}

# Every start but the first ends here.
case ${1:-} in
--setup | --bundle | --pack) ;;
*) ! is_ready || exec "$venv/bin/python" "$main" "$@" ;;
esac
find_python
case ${1:-} in
--setup)
    shift
    from='' extras=''
    while [ $# -ge 2 ]; do
        case $1 in
        --from) from=$2 ;;
        --with) extras=$2 ;;
        *) break ;;
        esac
        shift 2
    done
    [ $# = 0 ] || fail 64 '--setup takes nothing, --from FILE, --with EXTRA,...'
    set_up "$from" "$extras"
    exit
    ;;
--bundle | --pack)
    [ $# = 2 ] || fail 64 "$1 takes a file"
    is_ready || set_up '' ''
    replacing "$2" "${1#--}"
    exit
    ;;
esac
# Help and a wrong command line need no set-up.
[ $# -gt 0 ] || exec "$python" "$main"
for argument in "$@"; do
    case $argument in -h | --help | --version) exec "$python" "$main" "$@" ;; esac
done
ROCKETMQ_STORE_SPARK_CHECK=1 "$python" "$main" "$@" || exit $?
set_up '' ''
exec "$venv/bin/python" "$main" "$@"
