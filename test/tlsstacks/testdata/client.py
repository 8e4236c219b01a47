"""usage: client.py HOST PORT NAME CAS
Connects, and ends with 0 if the server's certificate is good."""
import socket
import ssl
import sys

host, port, name, cas = sys.argv[1:]
context = ssl.create_default_context(cafile=cas)
context.wrap_socket(socket.create_connection((host, int(port))), server_hostname=name)
