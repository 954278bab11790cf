"""packages.py SO VERSION DIRECTORY - a wheel for pip and an archive for npm

This needs no other package and no network.  The archives name the machine and
the C library of the extension, as readelf reports them, so that they are not
installed elsewhere.  The same files give the same bytes.  Prints their paths.
"""
import base64
import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
MACHINES = {"X86-64": ("x86_64", "x64"), "AArch64": ("aarch64", "arm64")}


def read(*path):
    with open(os.path.join(*path), "rb") as f:
        return f.read()


def target(so):
    """("x86_64", "x64"), and the newest glibc version that it needs; None for
    musl."""
    said = subprocess.check_output(["readelf", "-hVW", so], text=True)
    versions = re.findall(r"GLIBC_2\.(\d+)", said)
    machine = next(m for name, m in MACHINES.items() if name in said)
    return machine, max(map(int, versions)) if versions else None


def wheel(so, version):
    """Its name and its bytes."""
    (machine, _), glibc = target(so)
    library = "musllinux_1_2" if glibc is None else f"manylinux_2_{glibc}"
    tag = f"py3-none-{library}_{machine}"
    info = f"zkembed-{version}.dist-info/"
    files = {
        "zkembed/__init__.py": read(HERE, "python", "zkembed", "__init__.py"),
        "zkembed/zkembed.so": read(so),
        info + "METADATA": f"Metadata-Version: 2.1\nName: zkembed\nVersion: "
        f"{version}\nRequires-Python: >=3.8\nLicense: 0BSD\n".encode(),
        info + "WHEEL": "Wheel-Version: 1.0\nGenerator: zkembed\n"
        f"Root-Is-Purelib: false\nTag: {tag}\n".encode(),
    }
    record = ""
    for name, data in files.items():
        sha = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
        record += f"{name},sha256={sha.decode().rstrip('=')},{len(data)}\n"
    files[info + "RECORD"] = f"{record}{info}RECORD,,\n".encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return f"zkembed-{version}-{tag}.whl", out.getvalue()


def npm_archive(so, version):
    (_, cpu), glibc = target(so)
    package = json.loads(read(HERE, "node", "package.json"))
    libc = "musl" if glibc is None else "glibc"
    package.update(version=version, cpu=[cpu], libc=[libc])
    files = {
        "package.json": json.dumps(package, indent=2).encode(),
        "index.js": read(HERE, "node", "index.js"),
        "zkembed.so": read(so),
    }
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo("package/" + name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return (f"zkembed-{version}-linux-{cpu}-{libc}.tgz",
            gzip.compress(out.getvalue(), mtime=0))


def main():
    so, version, directory = sys.argv[1:]
    for name, data in wheel(so, version), npm_archive(so, version):
        path = os.path.join(directory, name)
        with open(path, "wb") as f:
            f.write(data)
        print(path)


main()
