// usage: client.js HOST PORT NAME CAS
// Connects, and ends with 0 if the server's certificate is good.
const fs = require("fs"), net = require("net"), tls = require("tls");
const [host, port, name, cas] = process.argv.slice(2);
const socket = tls.connect(
	{host, port, ca: fs.readFileSync(cas), servername: net.isIP(name) ? "" : name, checkServerIdentity: (_, cert) => tls.checkServerIdentity(name, cert)},
	() => process.exit(0),
);
socket.on("error", (err) => {
	console.error(err.message);
	process.exit(1);
});
