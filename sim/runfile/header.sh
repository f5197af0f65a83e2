#!/bin/sh
# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Head of a self-extracting driver package: the archive follows the last line. Values in @...@ are filled in by the build.
crc=@CRC@
md5=@MD5@
size=@SIZE@
lines=@LINES@
label="NVIDIA Accelerated Graphics Driver for @PLATFORM@ @VERSION@"
name=@NAME@

say() { [ -n "$silent" ] || echo "$@"; }

usage() {
    cat <<USAGE

$0 [options]

This program will install the $label
by unpacking the embedded archive and executing ./nvidia-installer.

--info              print what this package is and exit
--check             check the integrity of the archive and exit
--list              print the files in the archive and exit
-x, --extract-only  extract the archive, do not run nvidia-installer
--target DIR        extract into DIR
--keep              do not delete the extracted files afterwards
--tmpdir DIR        extract below DIR instead of \$TMPDIR or /tmp; also passed on

All other options are passed on to nvidia-installer:

USAGE
}

archive() { tail -n +$((lines + 1)) "$self"; }

check() {
    say "Verifying archive integrity... "
    found=$(archive | wc -c)
    if [ "$found" -ne "$size" ]; then
        echo "Unexpected archive size: $found bytes instead of $size" >&2
        return 1
    fi
    sum=$(archive | md5sum | cut -d' ' -f1)
    if [ "$sum" != "$md5" ]; then
        echo "Error in MD5 checksums: $sum is different from $md5" >&2
        return 1
    fi
    sum=$(archive | cksum | cut -d' ' -f1)
    if [ "$sum" != "$crc" ]; then
        echo "Error in checksums: $sum is different from $crc" >&2
        return 1
    fi
    say "OK"
}

extract() { # directory
    mkdir -p "$1" || exit 1
    say "Uncompressing $label..."
    if ! archive | gzip -dc | tar -xf - -C "$1" --no-same-owner; then
        echo "Extraction failed." >&2
        return 1
    fi
}

# The extracted installer has to run from there: a directory on a noexec file system will not do.
executable() { # directory
    probe=$1/probe
    printf '#!/bin/sh\nexit 0\n' >"$probe" && chmod +x "$probe" && "$probe" 2>/dev/null
    rc=$?
    rm -f "$probe"
    if [ -z "$tmpdir_given" ] && grep -qs '^tmp-noexec' "${GPUFLEET_SIM_ROOT:-}/etc/gpufleet-sim/installer-fault"; then
        rc=126
    fi
    return $rc
}

refuse_tmpdir() {
    text="ERROR: Temporary directory $tmproot is not executable - use the --tmpdir option"
    log=${GPUFLEET_SIM_ROOT:-}/var/log/nvidia-installer.log
    mkdir -p "${log%/*}" 2>/dev/null
    { printf "nvidia-installer log file '/var/log/nvidia-installer.log'\n%s\n" "$text" >"$log"; } 2>/dev/null
    echo "$text to name one that is." >&2
    exit 1
}

case $0 in */*) self=$0 ;; *) self=./$0 ;; esac
action=run silent='' keep='' target='' tmpdir_given=''
tmproot=${TMPDIR:-/tmp}
passed=''
quote() { printf " '%s'" "$(printf '%s' "$1" | sed "s/'/'\\\\''/g")"; }

while [ $# -gt 0 ]; do
    case $1 in
        -h | --help | -A | --advanced-options) action=help; passed="$passed $(quote "$1")" ;;
        --info) action=info ;;
        --check) action=check ;;
        --list) action=list ;;
        -x | --extract-only) action=extract ;;
        --keep) keep=yes ;;
        --target) shift; target=${1:?--target needs a directory} ;;
        --target=*) target=${1#*=} ;;
        --tmpdir) shift; tmproot=${1:?--tmpdir needs a directory}; tmpdir_given=yes; passed="$passed $(quote "--tmpdir=$tmproot")" ;;
        --tmpdir=*) tmproot=${1#*=}; tmpdir_given=yes; passed="$passed $(quote "$1")" ;;
        --add-this-kernel | --apply-patch)
            echo "$0: $1 repacks the vendor's archive and has no counterpart here" >&2
            exit 1
            ;;
        -s | --silent) silent=yes; passed="$passed $(quote "$1")" ;;
        *) passed="$passed $(quote "$1")" ;;
    esac
    shift
done

case $action in
    info)
        cat <<INFO

  Identification    : $label
  Target directory  : $name
  Uncompressed size : @KILOBYTES@ KB
  Compression       : gzip
  Date of packaging : @DATE@
  Application run after extraction : ./nvidia-installer

  The directory $name will be removed after extraction.

INFO
        exit 0
        ;;
    check) check; exit ;;
    list) archive | gzip -dc | tar -tf - ; exit ;;
    extract)
        target=${target:-$name}
        if [ -e "$target" ]; then
            echo "The directory $target exists already" >&2
            exit 1
        fi
        say "Creating directory $target"
        check && extract "$target"
        exit
        ;;
esac

if [ "$action" = help ]; then usage; silent=yes; fi
check || exit 1
if [ ! -d "$tmproot" ]; then
    echo "$tmproot: no such directory" >&2
    exit 1
fi
work=$(mktemp -d "$tmproot/selfgzXXXXXX") || exit 1
[ -n "$keep" ] || trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
executable "$work" || refuse_tmpdir
extract "${target:-$work/$name}" || exit 1
cd "${target:-$work/$name}" || exit 1
eval "set -- $passed"
./nvidia-installer "$@"
exit $?
