/* D += A * B on one thread, as often as asked: what the kernels' tensor instructions do. */

#define MULTIPLY(name, factor, sum)                                                                          \
    void name(const factor *a, const factor *b, sum *d, int m, int n, int k, int rounds) {                   \
        for (int round = 0; round < rounds; round++)                                                         \
            for (int i = 0; i < m; i++)                                                                      \
                for (int j = 0; j < n; j++) {                                                                \
                    sum total = d[i * n + j];                                                                \
                    for (int inner = 0; inner < k; inner++)                                                  \
                        total += (sum)a[i * k + inner] * b[j * k + inner];                                   \
                    d[i * n + j] = total;                                                                    \
                }                                                                                            \
    }

MULTIPLY(of_floats, float, float)
MULTIPLY(of_bytes, signed char, int)
