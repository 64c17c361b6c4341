/* SPDX-License-Identifier: Apache-2.0
 * SPDX-FileCopyrightText: The cni-bridge developers
 *
 * beacon MILLISECONDS ADDRESS...: from its first instruction on sends TCP, UDP, queries and echo requests to each address,
 * IPv4 or IPv6, every 0.3 ms. Sockets are made anew each time, because a container may start before it has an address.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static void send_one(const char *text, int kind, int protocol, int port, const char *data, int size)
{
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    int is_six = strchr(text, ':') != 0;
    struct sockaddr *to = is_six ? (struct sockaddr *)&six : (struct sockaddr *)&four;
    socklen_t length = is_six ? sizeof six : sizeof four;
    inet_pton(is_six ? AF_INET6 : AF_INET, text, is_six ? (void *)&six.sin6_addr : (void *)&four.sin_addr);
    if (kind == SOCK_RAW && is_six) {
        protocol = IPPROTO_ICMPV6;
        six.sin6_port = 0;
    }
    int made = socket(is_six ? AF_INET6 : AF_INET, kind | SOCK_NONBLOCK, protocol);
    if (made < 0)
        return;
    if (kind == SOCK_STREAM)
        (void)!connect(made, to, length);
    else
        (void)!sendto(made, data, size, 0, to, length);
    close(made);
}

int main(int count, char **arguments)
{
    static const char four_echo[] = {8, 0, (char)0xf7, (char)0xff, 0, 0, 0, 0}, six_echo[] = {(char)128, 0, 0, 0, 0, 0, 0, 0};
    struct timespec begun, now, pause = {0, 300000};
    clock_gettime(CLOCK_MONOTONIC, &begun);
    long limit = count > 1 ? atol(arguments[1]) : 100;
    do {
        for (int i = 2; i < count; i++) {
            const char *echo = strchr(arguments[i], ':') ? six_echo : four_echo;
            send_one(arguments[i], SOCK_STREAM, 0, 443, 0, 0);
            send_one(arguments[i], SOCK_DGRAM, 0, 443, "out", 3);
            send_one(arguments[i], SOCK_DGRAM, 0, 53, "\0\7\1\0\0\1\0\0\0\0\0\0\1a\0\0\1\0\1", 19);
            send_one(arguments[i], SOCK_RAW, IPPROTO_ICMP, 0, echo, 8);
        }
        nanosleep(&pause, 0);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - begun.tv_sec) * 1000 + (now.tv_nsec - begun.tv_nsec) / 1000000 < limit);
    return 0;
}
