#!/usr/bin/env bash
# debian.sh SUITE PYTHON FOLDER, such as sid python3.14 build/debian: an interpreter that the release
# of Debian of this machine does not have, out of the packages of another one. FOLDER/root gets the
# packages, FOLDER/PYTHON runs the interpreter in it, and FOLDER/headers gets its headers. Needs root,
# and installs nothing. free_threaded.sh brings an interpreter without the GIL.
set -euo pipefail
suite=$1 python=$2
mkdir -p "$3"
folder=$(realpath "$3") root=$(realpath "$3")/root
mkdir -p "$folder"/{lists,cache/archives,state}/partial "$root"
: > "$folder/state/status"
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep '/debian/$' | head -n 1)
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" \
  > "$folder/sources.list"
options=(-qq -o Dir::Etc::sourcelist="$folder/sources.list" -o Dir::Etc::sourceparts=-
  -o Dir::State="$folder/state" -o Dir::State::status="$folder/state/status"
  -o Dir::State::lists="$folder/lists" -o Dir::Cache="$folder/cache" -o APT::Sandbox::User=root)
apt-get "${options[@]}" update
apt-get "${options[@]}" --no-install-recommends --download-only --yes install \
  "$python-venv" "lib$python-dev" libc-bin coreutils libstdc++6
# A merged /usr, as packages expect it.
mkdir -p "$root"/usr/{bin,sbin,lib,lib64} "$root"/{tmp,dev,proc,etc}
for name in bin sbin lib lib64; do ln -sfn "usr/$name" "$root/$name"; done
for package in "$folder"/cache/archives/*.deb; do
  dpkg-deb --fsys-tarfile "$package" | tar --extract --directory "$root" --keep-directory-symlink
done
# What pip's own copy of certifi is in Debian; a script of a package would have made it.
install -D /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
rm -rf "$folder/headers"
cp -r "$root/usr/include/$python" "$folder/headers"
cp "$root/usr/include/$(gcc -print-multiarch)/$python/pyconfig.h" "$folder/headers"
cat > "$folder/$python" <<RUN
#!/usr/bin/env bash
# Runs $python in its root, which shows the folder that this is called in.
here=\$PWD
exec unshare --mount bash -c '
  root=$root here=\$1; shift
  mkdir -p "\$root\$here"
  mount --rbind "\$here" "\$root\$here" && mount --rbind /dev "\$root/dev" && mount --rbind /proc "\$root/proc"
  exec chroot "\$root" env --chdir="\$here" PATH=/usr/bin $python "\$@"' sh "\$here" "\$@"
RUN
chmod +x "$folder/$python"
