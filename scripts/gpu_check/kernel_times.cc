// A library that writes down which kernels and copies a GPU ran and when, for nodes on which nsys does not work. CUDA's driver loads it
// into any program that is started with
//   CUDA_INJECTION64_PATH=libkernel_times.so KERNEL_TIMES=FILE [NVTX_INJECTION64_PATH=libcupti.so.13] PROGRAM ...
// and calls InitializeInjection() (CUPTI's documentation, "CUDA injection"). At the program's end FILE gets lines of columns between tabs,
// all times in nanoseconds of one clock, which tables.py reads:
//   kernel  START  END  THREAD  LAUNCHED  NAME    the thread that launched it, and when; -1 where that was not recorded
//   copy    START  END  BYTES  KIND               KIND as in "host to device"
//   range   START  END  THREAD  NAME              an NVTX range, if NVTX_INJECTION64_PATH hands them to CUPTI
// Without CUPTI of CUDA 13 (libcupti.so.13) the program runs as it would, and FILE gets one line "problem<TAB>TEXT".
#include <cupti.h>
#include <cxxabi.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <vector>

namespace {

struct Kernel {
  uint64_t start, end;
  uint32_t correlation;
  std::string name;
};
struct Copy {
  uint64_t start, end, bytes;
  const char* kind;
};
struct Launch {
  uint64_t at;
  uint32_t thread;
};
struct Range {
  uint64_t start, end;
  uint32_t thread;
  std::string name;
};

std::mutex lock;  // CUPTI completes buffers on a thread of its own
std::vector<Kernel> kernels;
std::vector<Copy> copies;
std::vector<Range> ranges;
std::unordered_map<uint32_t, Launch> launches;    // by correlation id
std::unordered_map<uint32_t, size_t> open_range;  // by marker id: its place in `ranges`
std::string problem;

decltype(&cuptiActivityGetNextRecord) next_record;
decltype(&cuptiActivityFlushAll) flush_all;
decltype(&cuptiGetResultString) result_string;

const char* kind_of(uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
      return "host to device";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
      return "device to host";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD:
      return "device to device";
    default:
      return "other";
  }
}

std::string demangled(const char* name) {
  int status = 0;
  char* text = name ? abi::__cxa_demangle(name, nullptr, nullptr, &status) : nullptr;
  std::string result = text && status == 0 ? text : name ? name : "?";
  std::free(text);
  return result;
}

// The first fields of a record are the same in all versions of CUPTI 13.
void take(const CUpti_Activity* record) {
  switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
    case CUPTI_ACTIVITY_KIND_KERNEL: {
      const auto& k = *reinterpret_cast<const CUpti_ActivityKernel10*>(record);
      kernels.push_back({k.start, k.end, k.correlationId, demangled(k.name)});
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
      const auto& c = *reinterpret_cast<const CUpti_ActivityMemcpy6*>(record);
      copies.push_back({c.start, c.end, c.bytes, kind_of(c.copyKind)});
      break;
    }
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER: {
      const auto& call = *reinterpret_cast<const CUpti_ActivityAPI*>(record);
      launches.try_emplace(call.correlationId, Launch{call.start, call.threadId});
      break;
    }
    case CUPTI_ACTIVITY_KIND_MARKER: {
      const auto& m = *reinterpret_cast<const CUpti_ActivityMarker2*>(record);
      if (m.flags & CUPTI_ACTIVITY_FLAG_MARKER_START) {
        open_range[m.id] = ranges.size();
        ranges.push_back({m.timestamp, 0, m.objectId.pt.threadId, m.name ? m.name : ""});
      } else if (const auto begun = open_range.find(m.id); begun != open_range.end()) {
        ranges[begun->second].end = m.timestamp;
        open_range.erase(begun);
      }
      break;
    }
    default:
      break;
  }
}

void CUPTIAPI give_buffer(uint8_t** buffer, size_t* size, size_t* most_records) {
  *size = 8u << 20;
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(64, *size));
  *most_records = 0;
}

void CUPTIAPI take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  const std::lock_guard hold(lock);
  for (CUpti_Activity* record = nullptr; next_record(buffer, valid, &record) == CUPTI_SUCCESS;) take(record);
  std::free(buffer);
}

void write() {
  if (flush_all) flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  const std::lock_guard hold(lock);
  std::FILE* file = std::fopen(std::getenv("KERNEL_TIMES"), "w");
  if (!file) return;
  if (!problem.empty()) std::fprintf(file, "problem\t%s\n", problem.c_str());
  const auto number = [](uint64_t value) { return static_cast<unsigned long long>(value); };
  for (const Kernel& k : kernels) {
    const auto launch = launches.find(k.correlation);
    const bool known = launch != launches.end();
    std::fprintf(file, "kernel\t%llu\t%llu\t%lld\t%lld\t%s\n", number(k.start), number(k.end),
                 known ? static_cast<long long>(launch->second.thread) : -1, known ? static_cast<long long>(launch->second.at) : -1,
                 k.name.c_str());
  }
  for (const Copy& c : copies) std::fprintf(file, "copy\t%llu\t%llu\t%llu\t%s\n", number(c.start), number(c.end), number(c.bytes), c.kind);
  for (const Range& r : ranges) {
    if (r.end) std::fprintf(file, "range\t%llu\t%llu\t%u\t%s\n", number(r.start), number(r.end), r.thread, r.name.c_str());
  }
  std::fclose(file);
}

// Returns what keeps CUPTI from recording; empty if nothing does.
std::string start() {
  void* cupti = dlopen("libcupti.so.13", RTLD_NOW | RTLD_GLOBAL);
  if (!cupti) {
    const char* said = dlerror();
    return said ? said : "libcupti.so.13 cannot be loaded";
  }
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(cupti, name));
    return function != nullptr;
  };
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks;
  decltype(&cuptiActivityEnable) enable;
  if (!find(register_callbacks, "cuptiActivityRegisterCallbacks") || !find(enable, "cuptiActivityEnable") ||
      !find(next_record, "cuptiActivityGetNextRecord") || !find(result_string, "cuptiGetResultString") ||
      !find(flush_all, "cuptiActivityFlushAll")) {
    return "libcupti.so.13 has no activity API";
  }
  const auto said = [](const char* call, CUptiResult status) {
    const char* text = "?";
    result_string(status, &text);
    return std::string(call) + ": " + text;
  };
  if (const CUptiResult status = register_callbacks(give_buffer, take_buffer); status != CUPTI_SUCCESS) {
    return said("cuptiActivityRegisterCallbacks", status);
  }
  for (const CUpti_ActivityKind kind : {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_RUNTIME,
                                        CUPTI_ACTIVITY_KIND_DRIVER, CUPTI_ACTIVITY_KIND_MARKER}) {
    if (const CUptiResult status = enable(kind); status != CUPTI_SUCCESS) return said("cuptiActivityEnable", status);
  }
  return "";
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  if (!std::getenv("KERNEL_TIMES")) return 1;
  problem = start();
  std::atexit(write);
  return 1;
}
