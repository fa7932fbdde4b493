/* NVIDIA's management library as far as pynvml is asked, made by hand (recorded answers: a GPU box leaves them in evidence/): device n takes 100 W x (n + 1), counted in millijoules.
 * FAKE_GPUS: how many (2). FAKE_NVML=no-counter: no energy counter, as before Volta; no-power: neither; no-driver: none;
 * still: a counter that does not move; half-way: the counter fails after its third reading; unknown: the temperature
 * fails; old: a driver before branch 535. FAKE_NVML_SCRIPT: a file of "SECONDS GPU MHZ REASONS CODE" lines, what a GPU
 * does from so long after the start on (CODE: how every call ends). FAKE_PROCESS: "PID GPU", what computes where. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define OK 0
#define NOT_SUPPORTED 3
#define INSUFFICIENT_SIZE 7
#define NOT_LOADED 9
#define FUNCTION_NOT_FOUND 13
#define GPU_IS_LOST 15
#define UNKNOWN 999
#define SM 1

typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory;
typedef struct { unsigned gpu, memory; } utilization;
typedef struct { unsigned pid; unsigned long long used; unsigned instance, compute; } process;

static int readings;
static double zero_s;

static int is(const char *what) {
  const char *said = getenv("FAKE_NVML");
  return said && strcmp(said, what) == 0;
}

static double now_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec + now.tv_nsec / 1e9;
}

static unsigned number(void *device) { return (unsigned)((char *)device - (char *)0); }

/* What the script says of a device now; returns how its calls end. */
static int scripted(void *device, unsigned *mhz, unsigned long long *reasons) {
  const char *path = getenv("FAKE_NVML_SCRIPT");
  unsigned gpu, clock = 1980;
  unsigned long long bits = 4;
  int code = OK, said;
  double from_s;
  FILE *script = path ? fopen(path, "r") : NULL;
  for (*mhz = clock, *reasons = bits; script && fscanf(script, "%lf %u %u %llx %d", &from_s, &gpu, &clock, &bits, &said) == 5;)
    if (gpu + 1 == number(device) && now_s() - zero_s >= from_s) *mhz = clock, *reasons = bits, code = said;
  if (script) fclose(script);
  return code;
}

static int ends(void *device) {
  unsigned mhz;
  unsigned long long reasons;
  return scripted(device, &mhz, &reasons);
}

int nvmlInitWithFlags(unsigned flags) {
  (void)flags;
  readings = 0;
  zero_s = now_s();
  return is("no-driver") ? NOT_LOADED : OK;
}

int nvmlShutdown(void) { return OK; }

int nvmlSystemGetDriverVersion(char *version, unsigned length) {
  snprintf(version, length, "580.95.05");
  return OK;
}

int nvmlSystemGetProcessName(unsigned pid, char *name, unsigned length) {
  snprintf(name, length, "/usr/bin/odd, name %u", pid);
  return OK;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
  const char *said = getenv("FAKE_GPUS");
  *count = said ? (unsigned)atoi(said) : 2;
  return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
  *device = (char *)0 + index + 1;
  return ends(*device);
}

int nvmlDeviceGetName(void *device, char *name, unsigned length) {
  snprintf(name, length, "NVIDIA Fake %u", number(device));
  return OK;
}

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length) {
  snprintf(uuid, length, "GPU-%u", number(device));
  return OK;
}

int nvmlDeviceGetPerformanceState(void *device, int *state) {
  *state = 0;
  return ends(device);
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius) {
  *celsius = sensor == 0 ? 60 + number(device) : 0;
  return is("unknown") ? UNKNOWN : ends(device);
}

int nvmlDeviceGetUtilizationRates(void *device, utilization *busy) {
  busy->gpu = 97;
  busy->memory = 50;
  return ends(device);
}

int nvmlDeviceGetMemoryInfo_v2(void *device, memory *told) {
  if (is("old")) return FUNCTION_NOT_FOUND;
  told->total = 80ULL << 30;
  told->used = 20ULL << 30;
  return ends(device);
}

int nvmlDeviceGetClockInfo(void *device, int kind, unsigned *mhz) {
  unsigned long long reasons;
  int code = scripted(device, mhz, &reasons);
  if (kind != SM) *mhz = 2619;
  return code;
}

int nvmlDeviceGetMaxClockInfo(void *device, int kind, unsigned *mhz) {
  *mhz = kind == SM ? 2100 : 2700;
  return ends(device);
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons) {
  unsigned mhz;
  return scripted(device, &mhz, reasons);
}

int nvmlDeviceGetCurrentClocksEventReasons(void *device, unsigned long long *reasons) {
  return is("old") ? FUNCTION_NOT_FOUND : nvmlDeviceGetCurrentClocksThrottleReasons(device, reasons);
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, process *found) {
  const char *said = getenv("FAKE_PROCESS");
  unsigned pid = 0, gpu = 0;
  if (!said || sscanf(said, "%u %u", &pid, &gpu) != 2 || gpu + 1 != number(device)) return *count = 0, ends(device);
  if (!found) return *count = 1, INSUFFICIENT_SIZE;
  *count = 1;
  found[0] = (process){.pid = pid, .used = 8ULL << 20};
  return ends(device);
}

int nvmlDeviceGetPowerManagementLimit(void *device, unsigned *milliwatts) {
  *milliwatts = 600000;
  return ends(device);
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) {
  *milliwatts = 100000 * number(device);
  return is("no-power") ? NOT_SUPPORTED : ends(device);
}

int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules) {
  if (is("no-counter") || is("no-power")) return NOT_SUPPORTED;
  if (is("half-way") && ++readings > 6) return GPU_IS_LOST;
  double seconds = is("still") ? 1 : now_s();
  *millijoules = (unsigned long long)(seconds * 100000 * number(device));
  return ends(device);
}
