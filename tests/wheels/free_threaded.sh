#!/usr/bin/env bash
# free_threaded.sh VERSION FOLDER, such as 3.14.7 build/free-threaded: builds CPython without the GIL
# out of the sources that Debian has of that version, since no Debian has such an interpreter.
# FOLDER/bin/python3.14t runs it, and has the headers that make wheel asks for. Needs a C compiler and
# the headers of zlib, for pip, and writes nothing outside of FOLDER.
set -euo pipefail
version=$1 minor=${1%.*}
mkdir -p "$2"
folder=$(realpath "$2")
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep '/debian/$' | head -n 1)
sources=$folder/sources
rm -rf "$sources"
mkdir "$sources"
curl --fail --silent --show-error --location --output "$folder/sources.tar.xz" \
  "${mirror}pool/main/p/python$minor/python${minor}_$version.orig.tar.xz"
tar --extract --directory "$sources" --strip-components=1 --file "$folder/sources.tar.xz"
cd "$sources"
./configure --quiet --disable-gil --prefix="$folder"
make --silent --jobs="$(nproc)"
make --silent install
"$folder/bin/python${minor}t" -VV
