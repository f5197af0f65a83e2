#!/bin/sh
# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# nvidia-installer of the simulated driver package: options, refusals, log and result follow the real one (see README.md).
# Values in @...@ are filled in by the build. GPUFLEET_SIM_ROOT puts another directory in front of every path (tests): nothing
# is loaded into a kernel then.
set -u
umask 022

VERSION=@VERSION@
BRANCH=@BRANCH@
PLATFORM=@PLATFORM@
ROOT=${GPUFLEET_SIM_ROOT:-}
STATE=$ROOT/var/lib/nvidia
FAULTS=$ROOT/etc/gpufleet-sim/installer-fault
# Order in which they must be unloaded; loading goes the other way round.
MODULES="nvidia-drm nvidia-modeset nvidia-uvm nvidia-peermem nvidia"

options() { # short name kind
    cat <<'OPTIONS'
@OPTIONS@
OPTIONS
}

gpus() { # device since until flavours
    cat <<'GPUS'
@GPUS@
GPUS
}

# --- log ------------------------------------------------------------------------------------------------------------------

write_log() { [ -z "$LOG" ] || printf '%s\n' "$*" >>"$LOG"; }
log() { write_log "$@"; [ -n "$opt_silent" ] || printf '%s\n' "$*"; }
warn() { log "WARNING: $*"; }
error() { write_log "ERROR: $*"; printf '\nERROR: %s\n\n' "$*" >&2; }

start_log() { # command line
    LOG=$ROOT${opt_log_file_name:-/var/log/nvidia-$ACTION.log}
    mkdir -p "${LOG%/*}"
    {
        printf "nvidia-installer log file '%s'\n" "${LOG#"$ROOT"}"
        printf 'creation time: %s\ninstaller version: %s\n\nPATH: %s\n\n' "$(date '+%a %b %e %T %Y')" "$VERSION" "$PATH"
        printf 'nvidia-installer command line:\n    %s\n' "$0"
        for word in "$@"; do printf '    %s\n' "$word"; done
        printf '\nUsing built-in stream user interface\n'
    } >"$LOG"
    log "-> Detected $(nproc) CPUs online; setting concurrency level to $(jobs_wanted)."
}

jobs_wanted() {
    if [ -n "$opt_concurrency_level" ]; then echo "$opt_concurrency_level"; return; fi
    count=$(nproc)
    if [ "$count" -gt 32 ]; then echo 32; else echo "$count"; fi
}

# --- injected faults ------------------------------------------------------------------------------------------------------

fault() { # name: is it asked for, of every version or of this one? $fault_value is what stands behind it
    fault_value=$({ cat "$FAULTS" 2>/dev/null; printf '%s\n' "${GPUFLEET_SIM_INSTALLER_FAULT:-}"; } |
        awk -v name="$1" -v version="$VERSION" '$1 == name || $1 == name "@" version { print $2 "+"; exit }')
    [ -n "$fault_value" ] || return 1
    fault_value=${fault_value%+}
}

# A power cut at the end of a phase (preflight, build, files, modules, load) leaves whatever the phase did.
end_of_phase() { if fault "die-in-$1"; then kill -9 $$; fi; }

# --- command line ---------------------------------------------------------------------------------------------------------

invalid() {
    [ -z "${1:-}" ] || printf '%s: %s\n' "$0" "$1" >&2
    printf "\nERROR: Invalid commandline, please run \`%s --help\` for usage information.\n\n" "$0" >&2
    exit 1
}

find_option() { # field (1 short, 2 name) and text: prints "name kind"
    options | awk -v field="$1" -v text="$2" '$field == text { print $2, $3; exit }'
}

set_option() { eval "opt_$(printf '%s' "$1" | tr - _)=\$2"; }

parse() {
    eval "$(options | awk '{ gsub("-", "_", $2); print "opt_" $2 "=" }')"
    # Asked about on every branch, known to some.
    opt_skip_module_load='' opt_allow_installation_with_running_driver='' opt_rebuild_initramfs=''
    opt_kernel_module_type='' opt_print_recommended_kernel_module_type=''
    while [ $# -gt 0 ]; do
        argument=$1 value='' has_value=''
        case $argument in *=*) value=${argument#*=} argument=${argument%%=*} has_value=yes ;; esac
        negated=''
        case $argument in
            --?*)
                found=$(find_option 2 "${argument#--}")
                if [ -z "$found" ]; then
                    case $argument in --no-*) found=$(find_option 2 "${argument#--no-}") negated=yes ;; esac
                    [ "${found#* }" = bool ] || found=''
                fi
                ;;
            -?) found=$(find_option 1 "${argument#-}") ;;
            *) found='' ;;
        esac
        [ -n "$found" ] || invalid "unrecognized option: \"$1\""
        case ${found#* } in
            value)
                if [ -z "$has_value" ]; then
                    [ $# -gt 1 ] || invalid "option \"$1\" requires an argument"
                    shift
                    value=$1
                fi
                set_option "${found% *}" "$value"
                ;;
            *)
                [ -z "$has_value" ] || invalid "option \"$argument\" takes no argument"
                if [ -n "$negated" ]; then set_option "${found% *}" no; else set_option "${found% *}" yes; fi
                ;;
        esac
        shift
    done
    opt_no_kernel_modules=$opt_no_kernel_modules$opt_no_kernel_module
    opt_kernel_modules_only=$opt_kernel_modules_only$opt_kernel_module_only
}

# --- the machine ----------------------------------------------------------------------------------------------------------

machine_gpus() { # PCI device ids of display and 3D controllers of the vendor
    for device in "$ROOT"/sys/bus/pci/devices/*; do
        [ "$(cat "$device/vendor" 2>/dev/null)" = 0x10de ] || continue
        case $(cat "$device/class" 2>/dev/null) in 0x0300* | 0x0302*) cat "$device/device" ;; esac
    done
}

gpu_flavours() { # device id: flavours this branch runs it with, nothing when it does not
    gpus | awk -v id="$1" -v branch="$BRANCH" '$1 == id && branch >= $2 && ($3 == "-" || branch < $3) { print $4 }'
}

recommended() { # open unless a GPU of the machine has no open flavour
    for id in $(machine_gpus); do
        case $(gpu_flavours "$id") in '' | *open*) ;; *) echo proprietary; return ;; esac
    done
    echo open
}

choose_flavour() {
    FLAVOUR=''
    case $opt_kernel_module_build_directory in
        '') ;;
        kernel) FLAVOUR=proprietary ;;
        kernel-open) FLAVOUR=open ;;
        *) invalid "invalid kernel module build directory: \"$opt_kernel_module_build_directory\"" ;;
    esac
    case $opt_kernel_module_type in
        '') ;;
        open | proprietary) FLAVOUR=$opt_kernel_module_type ;;
        *) invalid "invalid kernel module type: \"$opt_kernel_module_type\"" ;;
    esac
    if [ -z "$FLAVOUR" ]; then
        if [ "$BRANCH" -ge 560 ]; then FLAVOUR=$(recommended); else FLAVOUR=proprietary; fi
    fi
}

loaded() { [ -d "$ROOT/sys/module/$(printf '%s' "$1" | tr - _)" ]; }

library_folder() {
    if [ -d "$ROOT/usr/lib/@MULTIARCH@" ]; then echo "/usr/lib/@MULTIARCH@"
    elif [ -d "$ROOT/usr/lib64" ]; then echo /usr/lib64
    else echo /usr/lib; fi
}

# --- refusals -------------------------------------------------------------------------------------------------------------

check_loaded() {
    [ "$opt_allow_installation_with_running_driver" != yes ] || return 0
    for module in $MODULES; do
        if loaded "$module" || { [ "$module" = nvidia ] && fault module-loaded; }; then
            error "An NVIDIA kernel module '$module' appears to already be loaded in your kernel.  This may be because it is in use (for example, by an X server, a CUDA program, or the NVIDIA Persistence Daemon).  Stop what uses the GPUs, or reboot, before the driver is replaced."
            [ "$BRANCH" -lt 550 ] || log "-> Continue although a driver is running? (Answer: Abort installation)"
            return 1
        fi
    done
}

check_nouveau() {
    [ -z "$opt_no_nouveau_check" ] || return 0
    loaded nouveau || fault nouveau-in-use || return 0
    error "The Nouveau kernel driver is currently in use by your system.  This driver is incompatible with the NVIDIA driver, and must be disabled before proceeding."
    if [ "$opt_disable_nouveau" = yes ] || { [ "$BRANCH" -ge 550 ] && [ "$opt_disable_nouveau" != no ]; }; then
        for folder in /usr/lib/modprobe.d /etc/modprobe.d; do
            mkdir -p "$ROOT$folder"
            printf '# generated by nvidia-installer\nblacklist nouveau\noptions nouveau modeset=0\n' \
                >"$ROOT$folder/nvidia-installer-disable-nouveau.conf"
            log "-> One or more modprobe configuration files to disable Nouveau have been written: $folder/nvidia-installer-disable-nouveau.conf"
        done
    fi
    return 1
}

check_gpus() {
    [ -n "$(machine_gpus)" ] || return 0
    UNSUPPORTED=''
    for id in $(machine_gpus); do
        flavours=$(gpu_flavours "$id")
        case ,$flavours, in
            *,"$FLAVOUR",*) return 0 ;;
            ,,) UNSUPPORTED="PCI ID: 10de:${id#0x}) installed in this system is not supported by the NVIDIA $VERSION driver release." ;;
            *) UNSUPPORTED="PCI ID: 10de:${id#0x}) installed in this system requires use of the NVIDIA $flavours kernel modules." ;;
        esac
    done
    warn "You do not appear to have an NVIDIA GPU supported by the $VERSION NVIDIA Linux graphics driver installed in this system, or not with the $FLAVOUR kernel modules."
}

check_tools() {
    for tool in make "${CC:-cc}"; do
        if ! command -v "$tool" >/dev/null; then
            error "Unable to find the development tool \`$tool\` in your path; please make sure that you have the package that holds it installed."
            return 1
        fi
    done
    SOURCE=${opt_kernel_source_path:-$ROOT/lib/modules/$KERNEL/build}
    if fault headers-missing || [ ! -f "$SOURCE/Makefile" ]; then
        error "Unable to find the kernel source tree for the currently running kernel.  Please make sure you have installed the kernel source files for your kernel ($KERNEL) and that they are properly configured."
        return 1
    fi
}

# --- kernel modules -------------------------------------------------------------------------------------------------------

run_dkms() { # action, arguments
    action=$1
    shift
    if [ -n "$ROOT" ]; then
        mkdir -p "$ROOT/var/lib/dkms"
        set -- --dkmstree "$ROOT/var/lib/dkms" --sourcetree "$ROOT/usr/src" --installtree "$ROOT/lib/modules" "$@"
    fi
    case $action in build | install) set -- --kernelsourcedir "$SOURCE" "$@" ;; esac
    output=$(dkms "$action" "$@" 2>&1)
    rc=$?
    write_log "$output"
    return $rc
}

build_failed() { # text of the make log
    write_log "$1"
    error "The nvidia kernel module was not created."
}

install_source() {
    note tree "$TREE"
    rm -rf "$TREE"
    mkdir -p "$TREE" && cp -R "$BUILT/." "$TREE/" || failed
}

build_modules() {
    if fault slow; then sleep "${fault_value:-60}"; fi
    BUILT=kernel
    [ "$FLAVOUR" = proprietary ] || BUILT=kernel-open
    TREE=$ROOT${opt_kernel_module_source_prefix:-/usr/src}/${opt_kernel_module_source_dir:-nvidia-$VERSION}
    if fault compiler-mismatch; then
        build_failed "Compiler version check failed:
The kernel was built with gcc 13, but the current compiler (cc) is version 12."
        return 1
    fi
    if [ -n "$USE_DKMS" ]; then
        install_source
        note dkms "$VERSION"
        log "-> Installing DKMS kernel module:"
        if ! run_dkms add -m nvidia -v "$VERSION" || ! run_dkms build -m nvidia -v "$VERSION" -k "$KERNEL"; then
            write_log "$(tail -n 40 "$ROOT/var/lib/dkms/nvidia/$VERSION/build/make.log" 2>/dev/null)"
            error "Failed to run \`$(command -v dkms) build -m nvidia -v $VERSION -k $KERNEL\`."
            error "Failed to install the kernel module through DKMS. No kernel module was installed; please try installing again without DKMS, or check the DKMS logs for more information."
            return 1
        fi
        return 0
    fi
    [ -n "$opt_no_kernel_module_source" ] || install_source
    log "-> Building kernel modules"
    if ! output=$(make -C "$BUILT" -j"$(jobs_wanted)" KERNEL_UNAME="$KERNEL" SYSSRC="$SOURCE" ${CC:+CC="$CC"} \
        IGNORE_CC_MISMATCH="${IGNORE_CC_MISMATCH:-}" modules 2>&1); then
        error "An error occurred while performing the step: \"Building kernel modules\". See $LOG for details."
        build_failed "$output"
        return 1
    fi
    log "-> Kernel module compilation complete."
}

install_modules() {
    if fault rc0-without-module; then
        log "-> Kernel modules installed."
        return 0
    fi
    if [ -n "$USE_DKMS" ]; then
        if ! run_dkms install -m nvidia -v "$VERSION" -k "$KERNEL"; then
            error "Failed to install the kernel module through DKMS. No kernel module was installed; please try installing again without DKMS, or check the DKMS logs for more information."
            return 1
        fi
    else
        for module in $MODULES; do
            case $module-$opt_no_unified_memory$opt_no_drm$opt_no_peermem in
                nvidia-uvm-*) [ -z "$opt_no_unified_memory" ] || continue ;;
                nvidia-drm-*) [ -z "$opt_no_drm" ] || continue ;;
                nvidia-peermem-*) [ -z "$opt_no_peermem" ] || continue ;;
            esac
            put "$BUILT/$module.ko" 0644 "${opt_kernel_install_path:-/lib/modules/$KERNEL/kernel/drivers/video}"
        done
        [ -n "$opt_skip_depmod" ] || depmod -b "${ROOT:-/}" "$KERNEL" 2>/dev/null
    fi
    log "-> Kernel modules installed for $KERNEL."
}

load_failed() { # kernel messages
    error "Unable to load the kernel module 'nvidia.ko'.  This happens most frequently when this kernel module was built against the wrong or improperly configured kernel sources, with another version of the compiler, or if another driver holds the GPUs, or no GPU of this system is supported by this driver release."
    write_log "-> Kernel module load error: ${2:-No such device}"
    write_log "-> Kernel messages:"
    write_log "$1"
}

load_modules() {
    [ -z "$opt_skip_module_load" ] || return 0
    [ "$opt_allow_installation_with_running_driver" != yes ] || return 0
    [ "$KERNEL" = "$RUNNING" ] || return 0
    if fault unsigned; then
        error "The kernel module failed to load. Secure boot is enabled on this system, so this is likely because it was not signed by a key that is trusted by the kernel."
        load_failed "Loading of module with unavailable key is rejected" "Key was rejected by service"
        return 1
    fi
    if fault unsupported-gpu; then UNSUPPORTED="PCI ID: 10de:1db6) installed in this system is not supported by the NVIDIA $VERSION driver release."; fi
    if [ -n "$UNSUPPORTED" ]; then
        load_failed "NVRM: The NVIDIA GPU ($UNSUPPORTED"
        return 1
    fi
    if [ -n "$ROOT" ] || fault rc0-without-module; then return 0; fi
    for module in nvidia nvidia-uvm nvidia-modeset nvidia-drm; do
        [ "$module" != nvidia-uvm ] || [ -z "$opt_no_unified_memory" ] || continue
        [ "$module" != nvidia-drm ] || [ -z "$opt_no_drm" ] || continue
        if ! output=$(modprobe "$module" 2>&1); then
            load_failed "$(dmesg 2>/dev/null | tail -n 20)" "$output"
            return 1
        fi
    done
}

# --- files, and the record that uninstalls them -----------------------------------------------------------------------------

# One line an item, written before the item exists: what a killed installation left can be removed.
note() { [ -d "$STATE" ] || mkdir -p "$STATE"; printf '%s\t%s\n' "$1" "$2" >>"$RECORD"; }

put() { # source mode folder
    keep_foreign "$3/${1##*/}"
    note file "$3/${1##*/}"
    if ! { mkdir -p "$ROOT$3" && cp "$1" "$ROOT$3/${1##*/}" && chmod "$2" "$ROOT$3/${1##*/}"; }; then
        error "Unable to create '$3/${1##*/}' for copying."
        failed
    fi
}

keep_foreign() { # path: a file that is not ours is kept for the day of the uninstallation
    if [ -e "$ROOT$1" ] && [ -z "$opt_no_backup" ] && ! grep -qsxF "file	$1" "$RECORD"; then
        note kept "$1"
        mkdir -p "$STATE/kept$(dirname "$1")"
        cp -a "$ROOT$1" "$STATE/kept$1"
    fi
}

link() { # target path
    keep_foreign "$2"
    note file "$2"
    ln -sfn "$1" "$ROOT$2"
}

install_files() {
    folder_of_libraries=$(library_folder)
    while read -r group mode source destination links; do
        case $group in
            opengl) [ -z "$opt_no_opengl_files" ] || continue ;;
            modprobe) [ -z "$opt_no_nvidia_modprobe" ] || continue ;;
        esac
        case $destination in @LIB@*) destination=$folder_of_libraries${destination#@LIB@} ;; esac
        put "$source" "$mode" "$destination"
        for name in $links; do link "${source##*/}" "$destination/$name"; done
    done <.manifest
    link nvidia-installer /usr/bin/nvidia-uninstall
    if [ -n "$ROOT" ]; then ldconfig -r "$ROOT" 2>/dev/null; else ldconfig; fi
    log "-> Driver file installation is complete."
}

remove_recorded() { # record
    [ -f "$1" ] || return 0
    awk -F '\t' '$1 == "dkms" { print $2 }' "$1" | sort -u | while read -r version; do
        if command -v dkms >/dev/null && [ -d "$ROOT/var/lib/dkms/nvidia/$version" ]; then
            log "-> DKMS module detected; removing..."
            run_dkms remove -m nvidia -v "$version" --all
        fi
        rm -rf "$ROOT/var/lib/dkms/nvidia/$version"
        rmdir "$ROOT/var/lib/dkms/nvidia" 2>/dev/null
    done
    awk -F '\t' '$1 == "tree" { print $2 }' "$1" | while read -r tree; do rm -rf "$tree"; done
    awk -F '\t' '$1 == "file" { print $2 }' "$1" | while read -r path; do
        rm -f "$ROOT$path"
        rmdir -p --ignore-fail-on-non-empty "$(dirname "$ROOT$path")" 2>/dev/null
    done
    awk -F '\t' '$1 == "kept" { print $2 }' "$1" | while read -r path; do
        mkdir -p "$(dirname "$ROOT$path")"
        cp -a "$STATE/kept$path" "$ROOT$path" && rm -f "$STATE/kept$path"
    done
    rm -f "$1"
    find "$STATE" -depth -type d -empty -delete 2>/dev/null
    if [ -n "$ROOT" ]; then ldconfig -r "$ROOT" 2>/dev/null; else ldconfig; depmod "$KERNEL" 2>/dev/null; fi
    return 0
}

installed_version() { awk -F '\t' '$1 == "version" { print $2 }' "$STATE/log" 2>/dev/null; }

# --- actions --------------------------------------------------------------------------------------------------------------

failed() {
    if [ "$RECORD" = "$STATE/log.new" ]; then remove_recorded "$RECORD"; fi
    error "Installation has failed.  Please see the file '${LOG#"$ROOT"}' for details.  You may find suggestions on fixing installation problems in the README available on the Linux driver download page at www.nvidia.com."
    exit 1
}

install() {
    cd "$HERE" && [ -f .manifest ] || { error "There is no driver package beside $0."; exit 1; }
    RECORD=$STATE/log.new
    log "-> Installing NVIDIA driver version $VERSION."
    check_loaded || failed
    check_nouveau || failed
    check_gpus
    if [ -n "$opt_kernel_modules_only" ] && [ "$(installed_version)" != "$VERSION" ]; then
        error "The installed driver is not version $VERSION: kernel modules alone would not match it."
        failed
    fi
    end_of_phase preflight
    # What an installation that was killed left behind, then an installed copy of the same version: both are in the way of the build.
    remove_recorded "$STATE/log.new"
    if [ -z "$opt_kernel_modules_only" ] && [ "$(installed_version)" = "$VERSION" ]; then remove_recorded "$STATE/log"; fi
    [ -z "$opt_kernel_modules_only" ] || RECORD=$STATE/log
    [ -n "$opt_kernel_modules_only" ] || note version "$VERSION"
    USE_DKMS=''
    # From 550 the answer to "register with DKMS?" is yes where DKMS is present, unless --no-dkms is given.
    if [ "$opt_dkms" = yes ] || { [ "$BRANCH" -ge 550 ] && [ "$opt_dkms" != no ]; }; then
        if command -v dkms >/dev/null; then USE_DKMS=yes; elif [ "$opt_dkms" = yes ]; then
            warn "DKMS was not found: the kernel modules are built for $KERNEL only."
        fi
    fi
    # The build comes first: when it fails, the driver that is installed stays.
    if [ -z "$opt_no_kernel_modules" ]; then
        check_tools && build_modules || failed
        end_of_phase build
    fi
    if [ -z "$opt_kernel_modules_only" ]; then
        if [ -n "$(installed_version)" ]; then
            log "-> Uninstalling the previous installation (version $(installed_version))."
            remove_recorded "$STATE/log"
        fi
        install_files
        end_of_phase files
    fi
    if [ -z "$opt_no_kernel_modules" ]; then
        install_modules || failed
        end_of_phase modules
        load_modules || failed
        end_of_phase load
    fi
    [ "$RECORD" = "$STATE/log" ] || mv "$RECORD" "$STATE/log"
    if [ "$opt_rebuild_initramfs" = yes ] && [ -z "$ROOT" ]; then rebuild_initramfs; fi
    log "-> Installation of the NVIDIA Accelerated Graphics Driver for $PLATFORM (version: $VERSION) is now complete."
}

rebuild_initramfs() {
    if command -v update-initramfs >/dev/null; then update-initramfs -u -k "$KERNEL"
    elif command -v dracut >/dev/null; then dracut --force --kver "$KERNEL"; fi
}

uninstall() {
    if [ -z "$(installed_version)" ] && [ ! -f "$STATE/log.new" ]; then
        error "There is no NVIDIA driver currently installed."
        exit 1
    fi
    if [ -z "$opt_skip_module_unload" ] && [ -z "$ROOT" ]; then
        for module in $MODULES; do
            if loaded "$module" && ! modprobe -r "$module"; then warn "$module is in use and stays loaded until the next boot."; fi
        done
    fi
    log "-> Uninstalling NVIDIA Accelerated Graphics Driver for $PLATFORM ($(installed_version)):"
    RECORD=''
    remove_recorded "$STATE/log.new"
    remove_recorded "$STATE/log"
    log "-> Uninstallation of existing driver is complete."
}

sanity() {
    [ -n "$(installed_version)" ] || { error "There is no NVIDIA driver currently installed."; exit 1; }
    awk -F '\t' '$1 == "file" { print $2 }' "$STATE/log" | {
        rc=0
        while read -r path; do [ -e "$ROOT$path" ] || { error "$path is missing."; rc=1; }; done
        exit $rc
    }
}

usage() {
    printf '\n%s [options]\n\n' "$0"
    options | awk '{
        text = ($1 == "-" ? "" : "-" $1 ", ") "--" $2
        if ($3 == "value") text = text "=" toupper($2)
        if ($3 == "bool") text = text ", --no-" $2
        print "  " text
    }'
}

LOG='' RECORD='' UNSUPPORTED='' ACTION=installer
case ${0##*/} in nvidia-uninstall) ACTION=uninstall ;; esac
HERE=$(cd "$(dirname "$0")" && pwd)
parse "$@"
[ -z "$opt_uninstall" ] || ACTION=uninstall
if [ -n "$opt_help$opt_advanced_options" ]; then usage; exit 0; fi
if [ -n "$opt_version" ]; then echo "nvidia-installer:  version $VERSION"; exit 0; fi
if [ -n "$opt_print_recommended_kernel_module_type" ]; then recommended; exit 0; fi
if [ -n "$opt_driver_info" ]; then echo "The currently installed driver is: '$(installed_version)'"; exit 0; fi
choose_flavour
RUNNING=$(uname -r)
KERNEL=${opt_kernel_name:-$RUNNING}
if [ -z "$ROOT" ] && [ "$(id -u)" != 0 ]; then
    printf '\nERROR: nvidia-installer must be run as root\n\n' >&2
    exit 1
fi
if [ -n "$opt_sanity" ]; then sanity; exit; fi
start_log "$@"
case $ACTION in uninstall) uninstall ;; *) install ;; esac
