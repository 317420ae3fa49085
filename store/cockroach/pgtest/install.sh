#!/usr/bin/env bash
# Installs the programs of PostgreSQL, which the tests start themselves, if they are
# missing. No server of the system is made or started.
set -euo pipefail

if command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null; then
  exit 0
fi
sudo=
if ((EUID != 0)); then
  sudo="sudo -n"
fi
if ! command -v apt-get >/dev/null || ! $sudo true 2>/dev/null; then
  echo "The tests need PostgreSQL (initdb and postgres), which is missing and can't be installed by this user." >&2
  echo "Install it, on Debian and Ubuntu by: apt-get install postgresql" >&2
  exit 1
fi
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -q
# Without this file's line the package makes a cluster and starts it.
$sudo mkdir -p /etc/postgresql-common
echo 'create_main_cluster = false' | $sudo tee -a /etc/postgresql-common/createcluster.conf >/dev/null
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends -o Dpkg::Options::=--force-confold postgresql
