// Checks the machine code that nvcc generates for the kernels of attention, experts and matrix products: an additional register, spill or
// instruction in a hot loop must not go unnoticed. The limits concern the code, not a GPU, and hold for each architecture in the build.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "tests/kernels/support_device_code.h"
#include "tests/support/temporary_folder.h"

namespace spillway::device_code_cuda_test {
namespace {

using test::KernelCode;
using test::LoopCode;

// the values of attention_mma::Kind
constexpr int kPlain = 0, kDrops = 1, kMasked = 2, kGeneral = 3;
constexpr int kPlainWeight = 0, kInt8Weight = 2, kNf4Weight = 3;  // values of WeightFormat

// Returns the number of registers per thread under a launch bound of `blocks` blocks of
// `threads` threads. Registers are allocated in units of eight, and a thread can address 255.
constexpr int registers_for(int threads, int blocks) { return std::min(255, 65536 / (threads * blocks) / 8 * 8); }

// Holds the limits of a kernel that uses tensor cores. Its hot loop is the smallest loop with matrix products
// (mma.m16n8k16) and loads of their operands from shared memory (ldmatrix.x4). The numbers of products and
// loads follow from the tile sizes. Other instructions are allowed only as far as the formulas need them.
struct Hot {
  std::string name;
  int registers, stack_bytes;
  int products, loads, instructions;  // products and loads are exact numbers; the number of instructions is an upper limit
  bool unaligned;                     // whether the loop may load from the GPU's memory otherwise than by cp.async
};

// The most accesses to local memory in a hot loop of a kernel that may spill registers.
constexpr int kSpilled = 24;

// Returns the limits for each head width. A width is k sixteenths, and a product of m x n fragments over the width takes m n k
// instructions. Operands in registers need no loads. Kernels may keep loop constants in local memory if they hold sums of 32 x 128
// or twice 32 x 64 elements beside a tile, if they draw dropout, or if three blocks of the forward kernel share a multiprocessor.
std::vector<Hot> all_hot() {
  std::vector<Hot> all;
  for (const char* type : {"BFloat16", "Float16"}) {
    for (const int width : {64, 96, 128, 256}) {
      for (int kind = kPlain; kind <= kGeneral; ++kind) {
        const int k = width / 16, m = width <= 128 ? 2 : 1;  // a warp has m fragments of rows
        const std::string of = "<" + std::string(type) + ", " + std::to_string(width) + ", " + std::to_string(kind);
        const auto hot = [&](const std::string& name, int threads, int blocks, int stack, int products, int loads, int instructions) {
          all.push_back({name, registers_for(threads, blocks), stack, products, loads, instructions, kind == kGeneral});
        };
        // Returns the instructions beyond those of a plain kernel, for `scores` scores in a lane. Dropout takes up to 11 for each score and
        // has a loop that draws. Masks hide scores at both ends and have the arithmetic of scores twice, with a soft cap and without.
        const auto more = [&](int scores) {
          constexpr int kFixed[] = {0, 200, 200, 450}, kOfScore[] = {0, 11, 16, 26};
          return kFixed[kind] + kOfScore[kind] * scores;
        };
        const bool drawn = kind == kDrops || kind == kGeneral;
        const bool crowded = width == 64 && kind == kPlain;  // three thread blocks of this kernel share a multiprocessor
        const int n = 4 * m;                                 // a tile of forward has n fragments of keys
        hot("attend_tile" + of + ">", 128, crowded ? 3 : 2, drawn || crowded || width == 128 ? 40 : 0, 2 * m * n * k, (m + n) * k,
            (m == 2 ? 750 + 56 * k : 700) + more(4 * m * n));
        const int few = 2 * m;  // fragments of columns of a step of query_tile and key_tile
        hot("query_tile" + of + ">", 128, 2, kind != kPlain || width == 128 ? 40 : 0, 3 * m * few * k,
            width == 64 ? 6 * k : (2 * m + 3 * few / 2) * k, 560 + more(4 * m * few));
        if (width == 64) {
          hot("key_tile" + of + ">", 128, 2, 48, 4 * m * few * k, (4 + 4 + 2 + 2) * k, 560 + more(4 * m * few));
        } else {
          hot("wide_key_tile" + of + ", 8>", 256, 1, width == 128 ? 80 : 0, 2 * m * n * k, (m + n) * k, 1150 + more(4 * m * n));
          hot("wide_key_tile" + of + ", 4>", 128, 1, 0, 2 * m * few * k, (m + few) * k, 760 + more(4 * m * few));
        }
      }
    }
    // Products over the rows of experts: tiles of 128 or 64 rows x 128 columns, of which each of the four warps has a quarter, and 32 terms
    // in the loop. Quantized weights are loaded into registers and dequantized there.
    for (const int rows : {64, 128}) {
      const int m = rows / 2 / 16;
      for (const char* transposed : {"true", "false"}) {
        for (const int format : {kPlainWeight, kInt8Weight, kNf4Weight}) {
          const int dequantized = format == kPlainWeight ? 0 : format == kInt8Weight ? 215 : 280;
          const std::string of = std::string(type) + ", " + std::to_string(rows) + ", " + transposed + ", " + std::to_string(format);
          all.push_back({"rows_tile<" + of + ">", 255, 0, 2 * m * 8, 2 * (m + 4), 64 + 24 * m + dequantized, format != kPlainWeight});
        }
      }
    }
    for (const char* out : {"float", type})
      all.push_back({"weight_tile<" + std::string(type) + ", " + out + ">", 255, 0, 2 * 4 * 8, 2 * 8, 172, false});
  }
  return all;
}

std::string counted(const LoopCode& loop) {
  std::map<std::string, int> names;
  for (const auto& i : loop.instructions) ++names[i.name.substr(0, i.name.find('.'))];
  std::ostringstream out;
  out << loop.instructions.size() << " instructions:";
  for (const auto& [name, count] : names) out << " " << name << " " << count;
  return out.str();
}

using Violations = std::vector<std::string>;

Violations beyond(const KernelCode& kernel, int registers, int stack_bytes) {
  Violations all;
  const auto expect = [&](const char* what, int got, int most) {
    if (got > most)
      all.push_back(kernel.architecture + " " + kernel.name + ": " + std::to_string(got) + " " + what + ", expected at most " +
                    std::to_string(most));
  };
  expect("registers", kernel.registers, registers);
  expect("bytes of stack", kernel.stack_bytes, stack_bytes);
  expect("bytes of local memory", kernel.local_bytes, 0);
  return all;
}

Violations beyond(const KernelCode& kernel, const Hot& hot) {
  Violations all = beyond(kernel, hot.registers, hot.stack_bytes);
  const LoopCode loop = smallest_loop_with(kernel, "HMMA");
  const auto expect = [&](bool holds, const std::string& what) {
    if (!holds) all.push_back(kernel.architecture + " " + kernel.name + ": expected " + what + ", got " + counted(loop));
  };
  expect(loop.count("HMMA") == hot.products, std::to_string(hot.products) + " products");
  expect(loop.count("LDSM") == hot.loads, std::to_string(hot.loads) + " loads of fragments");
  expect(static_cast<int>(loop.instructions.size()) <= hot.instructions, "at most " + std::to_string(hot.instructions) + " instructions");
  for (const char* slow : {"LD", "ST", "STG", "ATOM", "RED", "I2F", "F2I", "DADD", "DMUL", "DFMA"}) {
    expect(loop.count(slow) == 0, std::string("no ") + slow);
  }
  expect(hot.unaligned || loop.count("LDG") == 0, "no loads from the GPU's memory but by cp.async");
  expect(loop.count("LDL") + loop.count("STL") <= (hot.stack_bytes > 0 ? kSpilled : 0), "next to nothing in local memory");
  return all;
}

std::string joined(const Violations& all) {
  std::string text;
  for (const std::string& each : all) text += each + "\n";
  return text;
}

class DeviceCodeRelease : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string files = SPILLWAY_DEVICE_CODE;
    if (!std::filesystem::exists(files.substr(0, files.find(',')))) GTEST_SKIP() << "needs the build folder of a build by nvcc";
    if (test::cuobjdump_version().empty()) GTEST_SKIP() << "needs cuobjdump: scripts/setup.sh --tests, or CUDA's bin on PATH";
  }
  // Returns the kernels in the compiled libraries of sequences, matrix products, images and experts.
  static std::vector<KernelCode> device_code() {
    std::vector<KernelCode> all;
    std::istringstream files(SPILLWAY_DEVICE_CODE);
    for (std::string file; std::getline(files, file, ',');) {
      for (KernelCode& kernel : test::kernels_in(file)) all.push_back(std::move(kernel));
    }
    return all;
  }
};

// Returns whether the kernel is one of a selective scan or of a gated delta rule. Their loops have no limits yet: they load the operands of
// small products element by element, also those on tensor cores (kernels/sequence/block_product_cuda.h).
bool is_recurrent(const KernelCode& kernel) {
  return kernel.name.starts_with("scan::") || kernel.name.starts_with("delta::") || kernel.name.starts_with("each_of<scan::");
}

// Returns how a kernel without tensor cores violates its limits. All its sums must be in registers, and it may
// spill only if it is attention with windows, documents or caps. Its hot loops must read tiles from shared memory.
Violations beyond_others(const KernelCode& kernel) {
  if (is_recurrent(kernel)) return beyond(kernel, 255, 128);
  const bool masked =
      kernel.name.ends_with(", false>") && (kernel.name.starts_with("attend<") || kernel.name.find("_gradients<") != std::string::npos);
  // In rotary embedding, sin and cos reduce large angles with a table in local memory.
  const bool turns = kernel.name.starts_with("turn_heads<");
  Violations all = beyond(kernel, 255, masked ? 96 : turns ? 40 : 0);
  const LoopCode loop = smallest_loop_with(kernel, "FFMA");
  const bool of_a_tile = loop.count("FFMA") >= 64;
  if (of_a_tile && loop.count("LDG") + loop.count("LD") > 0) {
    all.push_back(kernel.name + ": loads from the GPU's memory in its loop, " + counted(loop));
  }
  return all;
}

TEST_F(DeviceCodeRelease, KernelsOfAttentionAndProductsKeepTheirLimits) {
  const auto hots = all_hot();
  const auto kernels = device_code();
  Violations all;
  size_t on_tensor_cores = 0, others = 0;
  std::set<std::string> architectures;
  for (const KernelCode& kernel : kernels) {
    architectures.insert(kernel.architecture);
    const auto hot = std::ranges::find(hots, kernel.name, &Hot::name);
    ++(hot == hots.end() ? others : on_tensor_cores);
    const auto beyond_it = hot == hots.end() ? beyond_others(kernel) : beyond(kernel, *hot);
    all.insert(all.end(), beyond_it.begin(), beyond_it.end());
    if (hot == hots.end() && !is_recurrent(kernel)) {
      EXPECT_EQ(smallest_loop_with(kernel, "HMMA").count("HMMA"), 0) << kernel.name << " has no limits here";
    }
  }
  EXPECT_TRUE(all.empty()) << joined(all);
  EXPECT_EQ(on_tensor_cores, hots.size() * architectures.size());
  EXPECT_GE(others, 20u);
}

// Compiles a planted kernel with a third of the registers that it needs. The check must report it.
TEST_F(DeviceCodeRelease, SeesAPlantedKernelWithTooFewRegisters) {
  const test::TemporaryFolder folder;
  const std::string file = (folder / "planted").string();
  std::ofstream(file + ".cu") << R"(
    __global__ void __launch_bounds__(1024, 2) planted(const float* from, int n, float* to) {
      float sum[64] = {};
      for (int i = 0; i < n; ++i) {
        for (int j = 0; j < 64; ++j) sum[j] = fmaf(sum[(j + 1) % 64], sum[j], from[i * 64 + j]);
      }
      for (int j = 0; j < 64; ++j) to[threadIdx.x * 64 + j] = sum[j];
    })";
  ASSERT_EQ(std::system((SPILLWAY_CUDA_COMPILER " -arch=sm_80 -cubin -o '" + file + "' '" + file + ".cu' 2>/dev/null").c_str()), 0);
  const auto planted = test::kernels_in(file);
  ASSERT_EQ(planted.size(), 1u);
  EXPECT_EQ(planted[0].name, "planted");
  EXPECT_EQ(beyond(planted[0], registers_for(1024, 2), 0).size(), 1u) << joined(beyond(planted[0], registers_for(1024, 2), 0));
  const LoopCode loop = smallest_loop_with(planted[0], "FFMA");
  EXPECT_GT(loop.count("LDL") + loop.count("STL"), 0) << counted(loop);
  EXPECT_GT(loop.count("LDG"), 0) << counted(loop);
}

// Returns the listing of a loop of one product inside another loop, as cuobjdump prints it.
std::string listing(const std::string& between) {
  return "\t\tFunction : tile\n"
         "        /*0000*/                   MOV R1, c[0x0][0x28] ;                     /* 0x00000a0000017a02 */\n"
         "                                                                              /* 0x000fe40000000f00 */\n"
         "        /*0010*/                   LDG.E R2, [R2.64] ;                        /* 0x0 */\n"
         "        /*0020*/                   LDSM.16.M88.4 R4, [R8] ;                   /* 0x0 */\n"
         "        /*0030*/                   HMMA.16816.F32.BF16 R4, R4, R8, R4 ;       /* 0x0 */\n"
         "        /*0040*/              @!P0 " +
         between +
         " ;        /* 0x0 */\n"
         "        /*0050*/                   HMMA.16816.F32.BF16 R4, R4, R8, R4 ;       /* 0x0 */\n"
         "        /*0060*/               @P1 BRA 0x20 ;                                 /* 0x0 */\n"
         "        /*0070*/               @P2 BRA 0x10 ;                                 /* 0x0 */\n"
         "        /*0080*/                   EXIT ;                                     /* 0x0 */\n";
}

TEST(DeviceCode, LimitsFindWhatIsPlantedInAListing) {
  const auto violations = [](const std::string& between, const std::string& used, Hot hot) {
    const auto kernels = test::kernels_from(" Function tile:\n  REG:" + used + " TEXTURE:0\n", listing(between));
    EXPECT_EQ(kernels.size(), 1u);
    return beyond(kernels.at(0), hot).size();
  };
  const std::string fits = "128 STACK:0 SHARED:0 LOCAL:0";
  const Hot hot{"tile", 128, 0, 2, 1, 5, false};
  EXPECT_EQ(violations("FADD R1, R2, R3", fits, hot), 0u);
  EXPECT_EQ(violations("FADD R1, R2, R3", "129 STACK:0 SHARED:0 LOCAL:0", hot), 1u);
  EXPECT_EQ(violations("FADD R1, R2, R3", "128 STACK:8 SHARED:0 LOCAL:0", hot), 1u);
  EXPECT_EQ(violations("FADD R1, R2, R3", "128 STACK:0 SHARED:0 LOCAL:8", hot), 1u);
  EXPECT_EQ(violations("LDG.E.U16 R1, [R2.64]", fits, hot), 1u);
  EXPECT_EQ(violations("LDL R1, [R1]", fits, hot), 1u);
  EXPECT_EQ(violations("LDL R1, [R1]", fits, {"tile", 128, 8, 2, 1, 5, false}), 0u);
  EXPECT_EQ(violations("STL [R1], R2", fits, hot), 1u);
  EXPECT_EQ(violations("I2F.RP R7, R17", fits, hot), 1u);
  EXPECT_EQ(violations("LDSM.16.M88.4 R4, [R8]", fits, hot), 1u);
  EXPECT_EQ(violations("HMMA.16816.F32 R4, R4, R8, R4", fits, hot), 1u);
  EXPECT_EQ(violations("FADD R1, R2, R3", fits, {"tile", 128, 0, 2, 1, 4, false}), 1u);
}

}  // namespace
}  // namespace spillway::device_code_cuda_test
