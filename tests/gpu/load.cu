// A load of known size on one GPU: copies inside its memory, and multiply-adds that keep its clocks busy.
//   load copy BYTES SECONDS    prints {"gb_s": ..., "seconds": ...}; a copy reads and writes each byte once
//   load burn SECONDS          prints {"seconds": ...}
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>

static double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

static void right(cudaError_t error, const char *what) {
  if (error != cudaSuccess) {
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
    exit(1);
  }
}

__global__ void copy(const uint4 *from, uint4 *to, size_t count) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x)
    to[i] = from[i];
}

__global__ void burn(float *out, int rounds) {
  float a = threadIdx.x, b = 1.0001f, c = 0.5f, d = 0.25f;
  for (int i = 0; i < rounds; i++) {
    a = fmaf(a, b, c); c = fmaf(c, b, d); d = fmaf(d, b, a); b = fmaf(b, 0.99999f, 1e-6f);
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = a + b + c + d;
}

int main(int argc, char **argv) {
  cudaDeviceProp device;
  right(cudaGetDeviceProperties(&device, 0), "device");
  const int blocks = device.multiProcessorCount * 16, threads = 256;
  if (argc == 4 && !strcmp(argv[1], "copy")) {
    const size_t bytes = strtoull(argv[2], nullptr, 10) / 16 * 16;
    const double wanted_s = atof(argv[3]);
    uint4 *from, *to;
    right(cudaMalloc(&from, bytes), "memory");
    right(cudaMalloc(&to, bytes), "memory");
    right(cudaMemset(from, 1, bytes), "memset");
    for (int i = 0; i < 3; i++) copy<<<blocks, threads>>>(from, to, bytes / 16);
    right(cudaDeviceSynchronize(), "warm-up");
    const double began = now_s();
    long copies = 0;
    do {
      for (int i = 0; i < 8; i++, copies++) copy<<<blocks, threads>>>(from, to, bytes / 16);
      right(cudaDeviceSynchronize(), "copy");
    } while (now_s() - began < wanted_s);
    const double took_s = now_s() - began;
    printf("{\"gb_s\": %.1f, \"seconds\": %.3f}\n", 2.0 * bytes * copies / took_s / 1e9, took_s);
    return 0;
  }
  if (argc == 3 && !strcmp(argv[1], "burn")) {
    float *out;
    right(cudaMalloc(&out, sizeof(float) * blocks * threads), "memory");
    const double began = now_s(), wanted_s = atof(argv[2]);
    do {
      burn<<<blocks, threads>>>(out, 100000);
      right(cudaDeviceSynchronize(), "burn");
    } while (now_s() - began < wanted_s);
    printf("{\"seconds\": %.3f}\n", now_s() - began);
    return 0;
  }
  fprintf(stderr, "usage: load copy BYTES SECONDS | load burn SECONDS\n");
  return 2;
}
