/* NVIDIA's management library as far as we speak to it: device n takes 100 W x (n + 1), counted in millijoules.
 * FAKE_GPUS: how many (2). FAKE_NVML=no-counter: no energy counter, as before Volta; no-power: neither; no-driver: none;
 * still: a counter that does not move; half-way: the counter fails after its third reading. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define OK 0
#define NOT_SUPPORTED 3
#define NOT_LOADED 9
#define GPU_IS_LOST 15

static int readings;

static int is(const char *what) {
  const char *said = getenv("FAKE_NVML");
  return said && strcmp(said, what) == 0;
}

static unsigned number(void *device) { return (unsigned)((char *)device - (char *)0); }

int nvmlInit_v2(void) { readings = 0; return is("no-driver") ? NOT_LOADED : OK; }
int nvmlShutdown(void) { return OK; }

int nvmlDeviceGetCount_v2(unsigned *count) {
  const char *said = getenv("FAKE_GPUS");
  *count = said ? (unsigned)atoi(said) : 2;
  return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
  *device = (char *)0 + index + 1;
  return OK;
}

int nvmlDeviceGetName(void *device, char *name, unsigned length) {
  snprintf(name, length, "NVIDIA Fake %u", number(device));
  return OK;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) {
  *milliwatts = 100000 * number(device);
  return is("no-power") ? NOT_SUPPORTED : OK;
}

int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (is("no-counter") || is("no-power")) return NOT_SUPPORTED;
  if (is("half-way") && ++readings > 6) return GPU_IS_LOST;
  double seconds = is("still") ? 1 : now.tv_sec + now.tv_nsec / 1e9;
  *millijoules = (unsigned long long)(seconds * 100000 * number(device));
  return OK;
}
