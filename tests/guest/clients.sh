# Read by the scripts of guests: words for the reader outside, and Linux's own clients.

say() { echo "GUEST $*"; }
fail() { say "failed: $*"; exit 1; }

# Mounts a share at /run/mnt. CLIENT is nfs3, nfs4.0, nfs4.1, nfs4.2 or cifs. Reads address, nfs_port, mount_port and
# export for NFS; address, smb_port, share, user and password for SMB. Options go to the kernel as they are: no helper
# programs are needed.
mount_client() { # CLIENT
    local nfs="addr=$address,port=${nfs_port:-},proto=tcp,sec=sys,hard"
    modprobe -a nfs nfsv3 nfsv4 cifs 2>/dev/null || true
    mkdir -p /run/mnt
    case $1 in
    nfs3) mount -i -t nfs -o "vers=3,$nfs,mountaddr=$address,mountport=$mount_port,mountproto=tcp,nolock" \
        "$address:$export" /run/mnt ;;
    nfs4.*) mount -i -t nfs4 -o "vers=${1#nfs},$nfs,clientaddr=10.99.0.2" "$address:$export" /run/mnt ;;
    cifs) mount -i -t cifs -o "unc=//$address/$share,ip=$address,port=$smb_port,username=$user,password=$password,vers=3.1.1,cache=none" \
        "//$address/$share" /run/mnt ;;
    *) fail "unknown client $1" ;;
    esac || { dmesg | tail -n 5; fail "mount of $1"; }
}
