// Tests the contents of a program built with CUDA: it has code for the promised GPUs, and needs nothing that a node without a driver lacks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/types.h"
#include "tests/e2e/support_program.h"

namespace spillway::test::binary_cuda_test {
namespace {

std::string output_of(const std::string& command) {
  const Workplace place;
  EXPECT_EQ(std::system((command + " >" + (place / "said").string() + " 2>&1").c_str()), 0) << command;
  return place.read("said");
}

TEST(BinaryRelease, AsksTheLoaderForNothingOfNvidias) {
  const std::string said = output_of("ldd " SPILLWAY_PROGRAM);
  EXPECT_TRUE(mentions(said, "libc.so")) << said;
  EXPECT_FALSE(std::regex_search(said, std::regex("lib(cuda|cublas|cudnn|nccl|nv)"))) << said;
}

template <class T>
T read_at(const std::string& bytes, size_t at) {
  T value{};
  if (at + sizeof value <= bytes.size()) std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

// Returns the architectures for which each .cu file has device code, as `cuobjdump --list-elf --list-ptx` would. A piece of device code
// begins with a header (magic, version, header size, size of what follows). Its entries follow: a header (kind, header size, size of the
// code, and the architecture at byte 28), then the code. Kind 1 is PTX and kind 2 machine code.
std::vector<std::set<std::string>> device_codes(const std::string& program) {
  constexpr u32 kMagic = 0xBA55ED50;
  constexpr size_t kHeader = 16;
  std::vector<std::set<std::string>> all;
  for (size_t at = 0; at + kHeader < program.size(); at += 8) {
    if (read_at<u32>(program, at) != kMagic || read_at<u16>(program, at + 4) != 1 || read_at<u16>(program, at + 6) != kHeader) continue;
    const size_t end = at + kHeader + read_at<u64>(program, at + 8);
    if (end > program.size()) continue;
    std::set<std::string>& found = all.emplace_back();
    for (size_t entry = at + kHeader; entry < end;) {
      found.insert((read_at<u16>(program, entry) == 1 ? "compute_" : "sm_") + std::to_string(read_at<u32>(program, entry + 28)));
      const size_t bytes = read_at<u32>(program, entry + 4) + read_at<u64>(program, entry + 8);
      if (bytes < kHeader) break;
      entry += bytes;
    }
  }
  return all;
}

// Returns the architectures that CMake was asked for: "80-real,90" stands for machine code for sm_80 and sm_90, and PTX for 90.
std::set<std::string> wanted_codes() {
  std::set<std::string> wanted;
  std::istringstream architectures(SPILLWAY_CUDA_ARCHITECTURES);
  for (std::string each; std::getline(architectures, each, ',');) {
    wanted.insert("sm_" + each.substr(0, each.find('-')));
    if (!each.ends_with("-real")) wanted.insert("compute_" + each);
  }
  return wanted;
}

TEST(BinaryRelease, HasCodeForTheGpusItIsBuiltForAndPtxForWhatComesAfter) {
  const auto wanted = wanted_codes();
  EXPECT_TRUE(std::ranges::any_of(wanted, [](const std::string& code) { return code.starts_with("compute_"); }))
      << SPILLWAY_CUDA_ARCHITECTURES;
  const auto codes = device_codes(output_of("cat " SPILLWAY_PROGRAM));
  EXPECT_GE(codes.size(), 10u) << "each .cu file has its own";
  for (const auto& found : codes) {
    std::string names;
    for (const std::string& name : found) names += name + " ";
    EXPECT_TRUE(std::ranges::includes(found, wanted)) << SPILLWAY_CUDA_ARCHITECTURES << ", got " << names;
  }
}

}  // namespace
}  // namespace spillway::test::binary_cuda_test
