#!/usr/bin/env bash
# Installs the programs of MariaDB, which the tests start themselves, if they are
# missing. It installs the server's core alone: no server of the system is made or
# started.
set -euo pipefail

if command -v mariadbd >/dev/null || [[ -x /usr/sbin/mariadbd ]]; then
  exit 0
fi
sudo=
if ((EUID != 0)); then
  sudo="sudo -n"
fi
if ! command -v apt-get >/dev/null || ! $sudo true 2>/dev/null; then
  echo "The tests need MariaDB (mariadbd and mariadb-install-db), which is missing and can't be installed by this user." >&2
  echo "Install it, on Debian and Ubuntu by: apt-get install --no-install-recommends mariadb-server-core" >&2
  exit 1
fi
$sudo apt-get update -q
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends mariadb-server-core
