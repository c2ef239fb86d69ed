// k-means clustering of an image's colours: a plain CUDA program, as a user would write it.
//
//   kmeans INPUT.ppm OUTPUT.ppm [MAX_ITERATIONS]
//
// Clusters the pixels around 16 colours until no pixel changes its cluster, writes the image in those
// colours, and prints the colours. All accumulation is in integers, so the result does not depend on the
// order of the atomics.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

constexpr int K = 16;
constexpr int THREADS = 256;
constexpr int SCALE = 16; // centroids are fixed-point: sixteenths of a colour level

struct Sums {
    unsigned long long red, green, blue, count;
};

#define CHECK(call)                                                                                          \
    do {                                                                                                     \
        cudaError_t error_ = (call);                                                                         \
        if (error_ != cudaSuccess) {                                                                         \
            std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(error_));  \
            std::exit(1);                                                                                    \
        }                                                                                                    \
    } while (0)

__global__ void assign(const uchar4 *pixels, int count, const int4 *centroids, int *labels, Sums *partial,
                       unsigned *changed) {
    __shared__ int4 centroid[K];
    __shared__ unsigned sums[K][4];
    __shared__ unsigned moved;

    for (int i = threadIdx.x; i < K; i += blockDim.x) {
        centroid[i] = centroids[i];
        sums[i][0] = sums[i][1] = sums[i][2] = sums[i][3] = 0;
    }
    if (threadIdx.x == 0)
        moved = 0;
    __syncthreads();

    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        const uchar4 pixel = pixels[i];
        int best = 0, best_distance = INT32_MAX;
        for (int k = 0; k < K; k++) {
            const int red = pixel.x * SCALE - centroid[k].x;
            const int green = pixel.y * SCALE - centroid[k].y;
            const int blue = pixel.z * SCALE - centroid[k].z;
            const int distance = red * red + green * green + blue * blue;
            if (distance < best_distance) {
                best_distance = distance;
                best = k;
            }
        }
        if (labels[i] != best) {
            labels[i] = best;
            atomicAdd(&moved, 1u);
        }
        atomicAdd(&sums[best][0], pixel.x);
        atomicAdd(&sums[best][1], pixel.y);
        atomicAdd(&sums[best][2], pixel.z);
        atomicAdd(&sums[best][3], 1u);
    }
    __syncthreads();

    for (int i = threadIdx.x; i < K; i += blockDim.x)
        partial[blockIdx.x * K + i] = {sums[i][0], sums[i][1], sums[i][2], sums[i][3]};
    if (threadIdx.x == 0)
        atomicAdd(changed, moved);
}

__global__ void reduce(const Sums *partial, int blocks, Sums *total) {
    const int block = blockIdx.x * blockDim.x + threadIdx.x;
    if (block >= blocks)
        return;
    for (int i = 0; i < K; i++) {
        const Sums &sum = partial[block * K + i];
        if (sum.count == 0)
            continue;
        atomicAdd(&total[i].red, sum.red);
        atomicAdd(&total[i].green, sum.green);
        atomicAdd(&total[i].blue, sum.blue);
        atomicAdd(&total[i].count, sum.count);
    }
}

__global__ void move_centroids(const Sums *total, int4 *centroids) {
    const int i = threadIdx.x;
    const Sums sum = total[i];
    if (sum.count == 0)
        return; // an empty cluster stays where it is
    centroids[i] = make_int4(static_cast<int>(sum.red * SCALE / sum.count),
                             static_cast<int>(sum.green * SCALE / sum.count),
                             static_cast<int>(sum.blue * SCALE / sum.count), static_cast<int>(sum.count));
}

__global__ void paint(const int *labels, int count, const int4 *centroids, uchar4 *pixels) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count)
        return;
    const int4 centroid = centroids[labels[i]];
    pixels[i] = make_uchar4((centroid.x + SCALE / 2) / SCALE, (centroid.y + SCALE / 2) / SCALE,
                            (centroid.z + SCALE / 2) / SCALE, 255);
}

struct Image {
    int width = 0, height = 0;
    std::vector<uchar4> pixels;
};

static Image read_ppm(const char *path) {
    Image image;
    std::FILE *file = std::fopen(path, "rb");
    if (!file || std::fscanf(file, "P6 %d %d 255", &image.width, &image.height) != 2 ||
        std::fgetc(file) == EOF) {
        std::fprintf(stderr, "%s: not a binary PPM file\n", path);
        std::exit(2);
    }
    std::vector<uint8_t> bytes(3ul * image.width * image.height);
    if (std::fread(bytes.data(), 1, bytes.size(), file) != bytes.size()) {
        std::fprintf(stderr, "%s: too short\n", path);
        std::exit(2);
    }
    std::fclose(file);
    image.pixels.resize(bytes.size() / 3);
    for (size_t i = 0; i < image.pixels.size(); i++)
        image.pixels[i] = make_uchar4(bytes[3 * i], bytes[3 * i + 1], bytes[3 * i + 2], 255);
    return image;
}

static void write_ppm(const char *path, const Image &image) {
    std::vector<uint8_t> bytes;
    bytes.reserve(3 * image.pixels.size());
    for (const uchar4 &pixel : image.pixels)
        bytes.insert(bytes.end(), {pixel.x, pixel.y, pixel.z});
    std::FILE *file = std::fopen(path, "wb");
    if (!file || std::fprintf(file, "P6\n%d %d\n255\n", image.width, image.height) < 0 ||
        std::fwrite(bytes.data(), 1, bytes.size(), file) != bytes.size() || std::fclose(file) != 0) {
        std::perror(path);
        std::exit(2);
    }
}

int main(int argc, char **argv) {
    if (argc < 3) {
        std::fprintf(stderr, "usage: kmeans INPUT.ppm OUTPUT.ppm [MAX_ITERATIONS]\n");
        return 2;
    }
    Image image = read_ppm(argv[1]);
    const int limit = argc > 3 ? std::atoi(argv[3]) : 1000;
    const int count = static_cast<int>(image.pixels.size());
    const int blocks = std::min(64, (count + THREADS - 1) / THREADS);

    cudaStream_t compute, upload;
    CHECK(cudaStreamCreateWithFlags(&compute, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&upload, cudaStreamNonBlocking));

    uchar4 *pixels;
    int *labels;
    int4 *centroids;
    Sums *total;
    unsigned *changed, *host_changed;
    CHECK(cudaMalloc(&pixels, count * sizeof *pixels));
    CHECK(cudaMalloc(&labels, count * sizeof *labels));
    CHECK(cudaMalloc(&centroids, K * sizeof *centroids));
    CHECK(cudaMalloc(&total, K * sizeof *total));
    CHECK(cudaMalloc(&changed, sizeof *changed));
    CHECK(cudaMallocHost(&host_changed, sizeof *host_changed));

    int4 start[K];
    for (int i = 0; i < K; i++) {
        const uchar4 pixel = image.pixels[(2ull * i + 1) * count / (2 * K)];
        start[i] = make_int4(pixel.x * SCALE, pixel.y * SCALE, pixel.z * SCALE, 0);
    }
    cudaEvent_t uploaded;
    CHECK(cudaEventCreateWithFlags(&uploaded, cudaEventDisableTiming));
    CHECK(
        cudaMemcpyAsync(pixels, image.pixels.data(), count * sizeof *pixels, cudaMemcpyHostToDevice, upload));
    CHECK(cudaMemcpyAsync(centroids, start, sizeof start, cudaMemcpyHostToDevice, upload));
    CHECK(cudaMemsetAsync(labels, 0xff, count * sizeof *labels, upload));
    CHECK(cudaEventRecord(uploaded, upload));
    CHECK(cudaStreamWaitEvent(compute, uploaded, 0));

    int iterations = 0;
    for (bool moving = true; moving && iterations < limit; iterations++) {
        Sums *partial; // scratch memory of one iteration, as a library call would take it
        cudaEvent_t counted;
        CHECK(cudaMalloc(&partial, static_cast<size_t>(blocks) * K * sizeof *partial));
        CHECK(cudaEventCreateWithFlags(&counted, cudaEventDisableTiming));
        CHECK(cudaMemsetAsync(total, 0, K * sizeof *total, compute));
        CHECK(cudaMemsetAsync(changed, 0, sizeof *changed, compute));
        assign<<<blocks, THREADS, 0, compute>>>(pixels, count, centroids, labels, partial, changed);
        CHECK(cudaGetLastError());
        reduce<<<1, blocks, 0, compute>>>(partial, blocks, total);
        CHECK(cudaGetLastError());
        move_centroids<<<1, K, 0, compute>>>(total, centroids);
        CHECK(cudaGetLastError());
        CHECK(cudaMemcpyAsync(host_changed, changed, sizeof *changed, cudaMemcpyDeviceToHost, compute));
        CHECK(cudaEventRecord(counted, compute));
        CHECK(cudaEventSynchronize(counted)); // the only wait of an iteration
        CHECK(cudaEventDestroy(counted));
        CHECK(cudaFree(partial));
        moving = *host_changed != 0;
    }

    paint<<<(count + THREADS - 1) / THREADS, THREADS, 0, compute>>>(labels, count, centroids, pixels);
    CHECK(cudaGetLastError());
    int4 colours[K];
    CHECK(cudaMemcpyAsync(colours, centroids, sizeof colours, cudaMemcpyDeviceToHost, compute));
    CHECK(cudaMemcpyAsync(image.pixels.data(), pixels, count * sizeof *pixels, cudaMemcpyDeviceToHost,
                          compute));
    CHECK(cudaStreamSynchronize(compute));

    std::printf("%d pixels, %d iterations, %s\n", count, iterations, *host_changed ? "stopped" : "converged");
    for (int i = 0; i < K; i++)
        std::printf("cluster %2d: #%02x%02x%02x %d pixels\n", i, (colours[i].x + SCALE / 2) / SCALE,
                    (colours[i].y + SCALE / 2) / SCALE, (colours[i].z + SCALE / 2) / SCALE, colours[i].w);
    write_ppm(argv[2], image);

    CHECK(cudaEventDestroy(uploaded));
    CHECK(cudaStreamDestroy(upload));
    CHECK(cudaStreamDestroy(compute));
    CHECK(cudaFreeHost(host_changed));
    for (void *memory : {(void *)pixels, (void *)labels, (void *)centroids, (void *)total, (void *)changed})
        CHECK(cudaFree(memory));
    return 0;
}
