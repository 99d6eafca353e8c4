// Checks cuDNN's graphs with the real library on a machine without a GPU: the test describes a GPU to the library. cuDNN
// compiles engines with libcuda; if there is no driver, the toolkit's stub library takes its place. No kernel runs.
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "kernels/sequence/cudnn_graph_cuda.h"

namespace spillway::cudnn_graphs_cuda_test {
namespace {

using namespace kernels::cudnn;

// Returns what this machine lacks for the tests, or "" if it lacks nothing.
std::string missing() {
#ifdef __CUDA_EMULATED__
  return "needs a build that does not emulate cuDNN";
#else
  if (!dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL)) {
    const char* stub = "/usr/local/cuda/lib64/stubs/libcuda.so";  // a stub library with the soname libcuda.so.1
    if (!dlopen(stub, RTLD_NOW | RTLD_GLOBAL)) return std::string("needs libcuda.so.1 or the toolkit's stub of it: ") + dlerror();
  }
  try {
    return too_old(library());
  } catch (const Error& e) {
    return e.what();
  }
#endif
}

struct GpuInWords {
  const char* name;
  int compute_capability, multiprocessors;
  i64 l2_bytes, bytes, clock_khz, memory_clock_khz;
};
constexpr GpuInWords kHopper{"H100", 90, 132, 52428800, 85031714816, 1980000, 2619000},
    kBlackwell{"B200", 100, 148, 132644864, 191503138816, 1965000, 3996000};

std::string json_of(const GpuInWords& g) {
  char text[1500];
  std::snprintf(text, sizeof text,
                R"({"deviceVer":%d,"multiProcessorCount":%d,"smCountOrigin":0,"warpSize":32,"maxSharedMemoryPerBlock":49152,)"
                R"("maxSharedMemoryPerBlockOptin":232448,"oversizedSharedMemoryPerBlock":0,"reservedSharedMemoryPerBlock":1024,)"
                R"("maxRegistersPerSM":65536,"maxCtasPerSM":32,"maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"regsPerBlock":65536,)"
                R"("totalGlobalMem":%lld,"smClockRateKHz":%lld,"l2CacheSize":%lld,"maxBlockSize":[1024,1024,64],"memClockRateKHz":%lld,)"
                R"("memoryBusWidth":5120,"maxGridSize":[2147483647,65535,65535],"supportCoopLaunch":1,"pciDeviceId":0,"isTccDriver":0,)"
                R"("cudaDeviceId":0,"driverVer":13000,"deviceName":"%s"})",
                10 * g.compute_capability, g.multiprocessors, static_cast<long long>(g.bytes), static_cast<long long>(g.clock_khz),
                static_cast<long long>(g.l2_bytes), static_cast<long long>(g.memory_clock_khz), g.name);
  return text;
}

Descriptor described(const GpuInWords& g) {
  Descriptor made(Kind::device_properties);
  const std::string json = json_of(g);
  made.set(Attribute::device_json, Type::character, static_cast<i64>(json.size()), json.data());
  made.finalize();
  return made;
}

// Returns the attention problems of the model presets, with micro-batches of several sizes.
std::vector<Problem> shapes_of_the_models() {
  struct Heads {
    i64 heads, kv_heads, width, length;
  };
  constexpr Heads kHeads[] = {{4, 4, 32, 256},     // gpt2-tiny
                              {4, 2, 32, 256},     // llama-tiny
                              {12, 12, 64, 1024},  // gpt2-124m
                              {16, 16, 64, 1024},  // gpt2-355m
                              {20, 20, 64, 1024},  // gpt2-774m
                              {25, 25, 64, 1024},  // gpt2-1.5b
                              {32, 8, 64, 8192},   // llama3-1b
                              {32, 8, 128, 8192},  // llama3-8b
                              {64, 8, 128, 8192},  // llama3-70b
                              {32, 8, 128, 2048},  // a sequence that is shorter than those of the presets
                              {12, 12, 64, 1000},  // a sequence length that is not a multiple of a tile
                              {12, 12, 80, 37}};
  std::vector<Problem> all;
  for (const Heads& h : kHeads) {
    for (const i64 batch : {1, 4}) {
      for (const DType dtype : {DType::bf16, DType::f16}) {
        for (const bool backward : {false, true}) all.push_back({batch, h.length, h.heads, h.kv_heads, h.width, dtype, true, backward});
      }
    }
  }
  return all;
}

class CudnnGraphsRelease : public testing::TestWithParam<GpuInWords> {};

TEST_P(CudnnGraphsRelease, OfEveryShapeOfTheModelsAreValidAndWithinTheBound) {
  if (const std::string why = missing(); !why.empty()) GTEST_SKIP() << why;
  if (const std::string why = why_not_on(GetParam().compute_capability, library().version_number()); !why.empty()) GTEST_SKIP() << why;
  const Descriptor gpu = described(GetParam());
  const Target target{GetParam().compute_capability, nullptr, gpu.raw()};
  for (const Problem& problem : shapes_of_the_models()) {
    SCOPED_TRACE(to_string(problem));
    const Graph graph(problem, contiguous(problem), target);
    const std::vector<Engine> engines = graph.engines();
    ASSERT_FALSE(engines.empty());
    for (const Engine& engine : engines) {
      const std::optional<Descriptor> config = graph.config(engine);
      ASSERT_TRUE(config) << to_string(engine);
      EXPECT_LE(config_workspace_bytes(*config) + delta_bytes(problem), workspace_bound(problem)) << to_string(engine);
    }
    if (problem.heads != problem.kv_heads) continue;
    EXPECT_TRUE(Graph(problem, thirds(problem), target).config(engines[0])) << "the same engine for other strides";
  }
}

std::string name_of(const testing::TestParamInfo<GpuInWords>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Gpus, CudnnGraphsRelease, testing::Values(kHopper, kBlackwell), name_of);

// The upper bound of cuDNN's workspace counts the gradients of all scores, and dk and dv of each query head. Hopper's engines need about as
// much.
TEST(CudnnBound, IsTheGradientsOfScoresAndOfEveryHead) {
  const Problem forward{1, 8192, 32, 8, 128, DType::bf16, true, false};
  EXPECT_EQ(workspace_bound(forward), 4096);
  const Problem gpt2{4, 1024, 12, 12, 64, DType::bf16, true, true}, llama{1, 8192, 32, 8, 128, DType::bf16, true, true};
  EXPECT_EQ(workspace_bound(gpt2), 4096 + 2 * 48 * i64{1024} * 1024 + 4 * 48 * 1024);
  EXPECT_EQ(workspace_bound(llama), 4096 + 2 * 32 * i64{8192} * 8192 + 8 * 32 * i64{8192} * 128 + 4 * 32 * 8192);
}

}  // namespace
}  // namespace spillway::cudnn_graphs_cuda_test
