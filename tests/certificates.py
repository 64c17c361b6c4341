# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Certificates of an authority for tests of TLS, and those of a stranger."""


def certificates_script(server: str, client: str) -> str:
    """Return a shell script that makes certificates and keys in the current directory: NAME.pem and NAME-key.pem.

    The authority `ca` signs those of a server at 127.0.0.1 and of a client; `stranger` signs those of `intruder`.
    The server may be a client, too, as etcd is of itself.
    """
    return f"""
new="-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
for authority in ca stranger; do
    openssl req -x509 $new -keyout $authority-key.pem -out $authority.pem -subj /CN=$authority \\
        -addext keyUsage=critical,keyCertSign,cRLSign
done
sign() {{
    openssl req $new -keyout $1-key.pem -out $1.csr -subj /CN=$1
    printf "subjectAltName=IP:127.0.0.1\\nextendedKeyUsage=$3\\n" >$1.ext
    openssl x509 -req -in $1.csr -CA $2.pem -CAkey $2-key.pem -CAcreateserial -days 2 -out $1.pem -extfile $1.ext
}}
sign {server} ca serverAuth,clientAuth
sign {client} ca clientAuth
sign intruder stranger clientAuth
"""
