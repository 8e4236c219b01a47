// usage: mbedtls HOST PORT NAME CAS
// Connects, and ends with 0 if the server's certificate is good.
#include <mbedtls/ctr_drbg.h>
#include <mbedtls/entropy.h>
#include <mbedtls/error.h>
#include <mbedtls/net_sockets.h>
#include <mbedtls/ssl.h>
#include <stdio.h>

static int check(const char *what, int ret) {
	char why[200];
	if (ret != 0) {
		mbedtls_strerror(ret, why, sizeof why);
		fprintf(stderr, "%s: %s (%d)\n", what, why, ret);
	}
	return ret;
}

int main(int argc, char **argv) {
	mbedtls_net_context net;
	mbedtls_ssl_context ssl;
	mbedtls_ssl_config config;
	mbedtls_x509_crt cas;
	mbedtls_entropy_context entropy;
	mbedtls_ctr_drbg_context random;
	if (argc != 5)
		return 2;
	mbedtls_net_init(&net);
	mbedtls_ssl_init(&ssl);
	mbedtls_ssl_config_init(&config);
	mbedtls_x509_crt_init(&cas);
	mbedtls_entropy_init(&entropy);
	mbedtls_ctr_drbg_init(&random);
	if (check("random", mbedtls_ctr_drbg_seed(&random, mbedtls_entropy_func, &entropy, NULL, 0)) ||
	    check("CAs", mbedtls_x509_crt_parse_file(&cas, argv[4])) || // positive: how many cannot be parsed
	    check("connect", mbedtls_net_connect(&net, argv[1], argv[2], MBEDTLS_NET_PROTO_TCP)) ||
	    check("config", mbedtls_ssl_config_defaults(&config, MBEDTLS_SSL_IS_CLIENT, MBEDTLS_SSL_TRANSPORT_STREAM, MBEDTLS_SSL_PRESET_DEFAULT)))
		return 1;
	mbedtls_ssl_conf_authmode(&config, MBEDTLS_SSL_VERIFY_REQUIRED);
	mbedtls_ssl_conf_ca_chain(&config, &cas, NULL);
	mbedtls_ssl_conf_rng(&config, mbedtls_ctr_drbg_random, &random);
	if (check("setup", mbedtls_ssl_setup(&ssl, &config)) || check("name", mbedtls_ssl_set_hostname(&ssl, argv[3])))
		return 1;
	mbedtls_ssl_set_bio(&ssl, &net, mbedtls_net_send, mbedtls_net_recv, NULL);
	if (check("handshake", mbedtls_ssl_handshake(&ssl))) {
		char why[500];
		mbedtls_x509_crt_verify_info(why, sizeof why, "", mbedtls_ssl_get_verify_result(&ssl));
		fputs(why, stderr);
		return 1;
	}
	return 0;
}
