// Stands for libcupti.so.13 in the test of scripts/gpu_check/kernel_times.cc: records a range in which one thread launches a kernel through
// the runtime, a copy, and a kernel whose launch is not recorded. With FAULT_CUPTI set nothing can be enabled.
#include <cupti.h>

#include <cstdlib>
#include <iterator>

namespace {

CUpti_BuffersCallbackRequestFunc give;
CUpti_BuffersCallbackCompleteFunc take;
size_t next = 0;

CUpti_ActivityMarker2 marker(CUpti_ActivityFlag flag, uint64_t at, const char* name) {
  CUpti_ActivityMarker2 m{};
  m.kind = CUPTI_ACTIVITY_KIND_MARKER, m.flags = flag, m.timestamp = at, m.id = 9, m.objectId.pt.threadId = 7, m.name = name;
  return m;
}

CUpti_ActivityKernel10 kernel(uint64_t start, uint64_t end, uint32_t correlation, const char* name) {
  CUpti_ActivityKernel10 k{};
  k.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, k.start = start, k.end = end, k.correlationId = correlation, k.name = name;
  return k;
}

}  // namespace

extern "C" {

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request, CUpti_BuffersCallbackCompleteFunc complete) {
  give = request, take = complete;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnable(CUpti_ActivityKind) { return std::getenv("FAULT_CUPTI") ? CUPTI_ERROR_NOT_COMPATIBLE : CUPTI_SUCCESS; }

CUptiResult cuptiGetResultString(CUptiResult, const char** text) {
  *text = "planted";
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityFlushAll(uint32_t) {
  uint8_t* buffer = nullptr;
  size_t bytes = 0, most = 0;
  give(&buffer, &bytes, &most);
  next = 0;
  take(nullptr, 0, buffer, bytes, bytes);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNextRecord(uint8_t*, size_t, CUpti_Activity** record) {
  static CUpti_ActivityMarker2 begin = marker(CUPTI_ACTIVITY_FLAG_MARKER_START, 10, "Forward 3"),
                               end = marker(CUPTI_ACTIVITY_FLAG_MARKER_END, 90, nullptr);
  static CUpti_ActivityKernel10 known = kernel(100, 150, 5, "_ZN8spillway4copyEi"), unknown = kernel(200, 260, 6, "plain");
  static CUpti_ActivityAPI launch{};
  launch.kind = CUPTI_ACTIVITY_KIND_RUNTIME, launch.start = 20, launch.end = 30, launch.threadId = 7, launch.correlationId = 5;
  static CUpti_ActivityMemcpy6 copy{};
  copy.kind = CUPTI_ACTIVITY_KIND_MEMCPY, copy.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_HTOD, copy.bytes = 4096, copy.start = 120,
  copy.end = 180;
  void* const all[] = {&begin, &known, &launch, &end, &copy, &unknown};
  if (next == std::size(all)) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = static_cast<CUpti_Activity*>(all[next++]);
  return CUPTI_SUCCESS;
}
}
