import java.io.*;
import java.net.Socket;
import java.security.KeyStore;
import java.security.cert.*;
import java.util.List;
import javax.net.ssl.*;

/**
 * usage: Client.java all|first HOST PORT NAME CAS
 * Connects, and ends with 0 if the server's certificate is good. It trusts all the file's CAs or, as some builders of
 * trust stores do, the first.
 */
class Client {
	public static void main(String[] args) throws Exception {
		KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
		store.load(null, null);
		CertificateFactory x509 = CertificateFactory.getInstance("X.509");
		try (InputStream in = new BufferedInputStream(new FileInputStream(args[4]))) {
			int n = 0;
			for (Certificate ca : args[0].equals("first") ? List.of(x509.generateCertificate(in)) : x509.generateCertificates(in)) {
				store.setCertificateEntry("ca" + n++, ca);
			}
		}
		TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
		trust.init(store);
		SSLContext tls = SSLContext.getInstance("TLS");
		tls.init(null, trust.getTrustManagers(), null);
		Socket tcp = new Socket(args[1], Integer.parseInt(args[2]));
		try (SSLSocket socket = (SSLSocket) tls.getSocketFactory().createSocket(tcp, args[3], tcp.getPort(), true)) {
			SSLParameters parameters = socket.getSSLParameters();
			parameters.setEndpointIdentificationAlgorithm("HTTPS");
			socket.setSSLParameters(parameters);
			socket.startHandshake();
		} catch (SSLException e) {
			System.err.println(e);
			System.exit(1);
		}
	}
}
