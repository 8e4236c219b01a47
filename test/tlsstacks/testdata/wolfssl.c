// usage: wolfssl HOST PORT NAME CAS
// Connects, and ends with 0 if the server's certificate is good.
#include <wolfssl/options.h>
#include <wolfssl/ssl.h>
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

int main(int argc, char **argv) {
	if (argc != 5)
		return 2;
	wolfSSL_Init();
	WOLFSSL_CTX *context = wolfSSL_CTX_new(wolfTLS_client_method());
	int ret = wolfSSL_CTX_load_verify_locations(context, argv[4], NULL);
	if (ret != WOLFSSL_SUCCESS) {
		fprintf(stderr, "CAs: %s (%d)\n", wolfSSL_ERR_reason_error_string(ret), ret);
		return 1;
	}
	wolfSSL_CTX_set_verify(context, WOLFSSL_VERIFY_PEER, NULL);
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[2]))};
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	if (inet_pton(AF_INET, argv[1], &to.sin_addr) != 1 || connect(fd, (struct sockaddr *)&to, sizeof to) != 0) {
		perror("connect");
		return 1;
	}
	WOLFSSL *ssl = wolfSSL_new(context);
	struct in_addr address;
	if (inet_pton(AF_INET, argv[3], &address) == 1) {
		wolfSSL_X509_VERIFY_PARAM_set1_ip_asc(wolfSSL_get0_param(ssl), argv[3]);
	} else {
		wolfSSL_UseSNI(ssl, WOLFSSL_SNI_HOST_NAME, argv[3], strlen(argv[3]));
		wolfSSL_check_domain_name(ssl, argv[3]);
	}
	wolfSSL_set_fd(ssl, fd);
	if (wolfSSL_connect(ssl) != WOLFSSL_SUCCESS) {
		int err = wolfSSL_get_error(ssl, 0);
		fprintf(stderr, "handshake: %s (%d)\n", wolfSSL_ERR_reason_error_string(err), err);
		return 1;
	}
	return 0;
}
