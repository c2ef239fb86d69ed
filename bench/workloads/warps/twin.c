/* The kernels of kernels.cu in plain C, on one thread. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TILE = 16, CLUSTERS = 16 };

void matmul(const float *a, const float *b, float *c, int n) {
    float as[TILE][TILE], bs[TILE][TILE], sum[TILE][TILE];
    for (int y = 0; y < n; y += TILE)
        for (int x = 0; x < n; x += TILE) {
            memset(sum, 0, sizeof sum);
            for (int tile = 0; tile < n; tile += TILE) {
                for (int i = 0; i < TILE; i++)
                    for (int j = 0; j < TILE; j++) {
                        as[i][j] = a[(y + i) * n + tile + j];
                        bs[i][j] = b[(tile + i) * n + x + j];
                    }
                for (int i = 0; i < TILE; i++)
                    for (int j = 0; j < TILE; j++)
                        for (int k = 0; k < TILE; k++)
                            sum[i][j] += as[i][k] * bs[k][j];
            }
            for (int i = 0; i < TILE; i++)
                memcpy(&c[(y + i) * n + x], sum[i], sizeof sum[i]);
        }
}

void reduce(const float *in, float *out, int n) {
    float sum = 0;
    for (int i = 0; i < n; i++)
        sum += in[i];
    *out = sum;
}

void scan(const int *in, int *out, int n) {
    for (int i = 0; i < n; i++)
        out[i] = in[i] + (i % 256 != 0 ? out[i - 1] : 0);
}

void stencil(const float *in, float *out, int n) {
    for (int i = 0; i < n; i++) {
        float sum = 0;
        for (int offset = -4; offset <= 4; offset++)
            sum += in[i + 4 + offset] * (float)(5 - abs(offset));
        out[i] = sum;
    }
}

void kmeans(const float *x, const float *y, const float *centres, int *nearest, float *sums, int n) {
    for (int i = 0; i < n; i++) {
        float best = 3e38f;
        int which = 0;
        for (int k = 0; k < CLUSTERS; k++) {
            float dx = x[i] - centres[2 * k], dy = y[i] - centres[2 * k + 1], distance = dx * dx + dy * dy;
            if (distance < best) {
                best = distance;
                which = k;
            }
        }
        nearest[i] = which;
        sums[3 * which] += x[i];
        sums[3 * which + 1] += y[i];
        sums[3 * which + 2] += 1;
    }
}
