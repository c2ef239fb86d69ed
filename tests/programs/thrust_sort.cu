// Thrust: sort, reduce, scan and unique on the device.
//
// suite: long
// compile: -arch=compute_80 -code=compute_80
#include <thrust/device_vector.h>
#include <thrust/host_vector.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/sort.h>
#include <thrust/unique.h>

#include <algorithm>
#include <numeric>

#include "check.h"

int main() {
    thrust::host_vector<int> host(50000);
    unsigned random = 7;
    for (auto &value : host) {
        random = random * 1664525u + 1013904223u;
        value = static_cast<int>(random >> 12) % 10007;
    }
    std::vector<int> expected(host.begin(), host.end());
    thrust::device_vector<int> device = host;
    EXPECT(thrust::reduce(device.begin(), device.end(), 0LL) ==
           std::accumulate(expected.begin(), expected.end(), 0LL));
    thrust::sort(device.begin(), device.end());
    std::sort(expected.begin(), expected.end());
    host = device;
    EXPECT(std::equal(host.begin(), host.end(), expected.begin()));
    device.erase(thrust::unique(device.begin(), device.end()), device.end());
    expected.erase(std::unique(expected.begin(), expected.end()), expected.end());
    EXPECT(device.size() == expected.size());
    thrust::inclusive_scan(device.begin(), device.end(), device.begin());
    std::partial_sum(expected.begin(), expected.end(), expected.begin());
    host = device;
    EXPECT(std::equal(host.begin(), host.end(), expected.begin()));
    digest("sums", host.data(), host.size() * sizeof(int));
    return check_failed;
}
