/* The loader library of OpenCL and its devices: what the device (dev_opencl.c) and the worker that compiles for it (tools/opencl_worker.c) share. The worker is linked
 * with this file alone, so it needs nothing else of the library. */
#include "rt/rt.h"
#include <dlfcn.h>
#include <stdio.h>

enum { CL_ALL_TYPES = -1, PLATFORMS_MOST = 16, DEVICES_MOST = 64 };

const char *opencl_error(int32_t st)
{
    switch (st) {
    case -1: return "device not found";
    case -2: return "device not available";
    case -3: return "compiler not available";
    case -4: return "no device memory for an object";
    case -5: return "out of resources";
    case -6: return "out of host memory";
    case -11: return "the program does not build";
    case -14: return "a command before it failed";
    case -36: return "invalid command queue";
    case -38: return "invalid memory object";
    case -42: return "invalid binary";
    case -45: return "invalid program executable";
    case -48: return "invalid kernel";
    case -51: return "invalid size of an argument";
    case -52: return "invalid arguments";
    case -54: return "invalid group size";
    case -61: return "invalid buffer size";
    default: return "failed";
    }
}

bool opencl_load(ClApi *cl, char *why, size_t nwhy)
{
    static const char *const names[] = {
#define CL(result, name, args) "cl" #name,
#include "rt/opencl.def"
#undef CL
    };
    void **const function[] = {
#define CL(result, name, args) (void **)&cl->name,
#include "rt/opencl.def"
#undef CL
    };
    if (!(cl->library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL))) {
        snprintf(why, nwhy, "OpenCL: there is no libOpenCL.so.1 (Debian: ocl-icd-libopencl1, and pocl-opencl-icd for the processor)");
        return false;
    }
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (!(*function[i] = dlsym(cl->library, names[i]))) {
            snprintf(why, nwhy, "OpenCL: libOpenCL.so.1 has no %s", names[i]);
            return false;
        }
    return true;
}

bool opencl_device(const ClApi *cl, uint32_t want, void **id, char *why, size_t nwhy)
{
    void *platform[PLATFORMS_MOST], *device[DEVICES_MOST];
    uint32_t np = 0, seen = 0;
    int32_t st = cl->GetPlatformIDs(PLATFORMS_MOST, platform, &np);
    if (st || !np) {
        snprintf(why, nwhy, "OpenCL: there is no platform (Debian: pocl-opencl-icd runs on the processor)");
        return false;
    }
    for (uint32_t p = 0; p < np && p < PLATFORMS_MOST; p++) {
        uint32_t nd = 0;
        if (cl->GetDeviceIDs(platform[p], (uint64_t)(int64_t)CL_ALL_TYPES, DEVICES_MOST, device, &nd)) continue;
        if (nd > DEVICES_MOST) nd = DEVICES_MOST;
        if (want < seen + nd) {
            *id = device[want - seen];
            return true;
        }
        seen += nd;
    }
    if (!seen) snprintf(why, nwhy, "OpenCL: %u platform%s without a device", np, np == 1 ? "" : "s");
    else snprintf(why, nwhy, "OpenCL: device %u is wanted, there are %u, from 0 on", want, seen);
    return false;
}
