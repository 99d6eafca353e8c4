// Reads the list of calls that the GPU emulator received while a GpuLog existed. With a real GPU there is no list. Only *cuda_test.cc
// files include this header.
#pragma once
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/types.h"
#include "tests/support/temporary_folder.h"

namespace spillway::test {

class GpuLog {
 public:
  struct Product {
    i64 m, n, k, epilogue, adds;
    std::array<i64, 3> alignment, leading;  // of A, B and D; alignments in bytes, leading dimensions in elements
  };
  GpuLog() { ::setenv("SPILLWAY_EMULATED_LOG", path_.c_str(), 1); }
  ~GpuLog() { ::unsetenv("SPILLWAY_EMULATED_LOG"); }
  GpuLog(const GpuLog&) = delete;
  GpuLog& operator=(const GpuLog&) = delete;

  /// Returns true if a list of calls was kept, and false on a real GPU.
  bool kept() const { return std::filesystem::exists(path_); }
  i64 count(const std::string& what) const {
    i64 n = 0;
    for (const std::string& line : lines()) n += line == what;
    return n;
  }
  /// Returns the number of kernels launched, including those of the library.
  i64 launches() const { return count("cudaLaunchKernelEx") + count("cublasLtMatmul"); }
  std::vector<Product> products() const {
    std::vector<Product> all;
    for (const std::string& line : lines()) {
      std::istringstream words(line);
      std::string what;
      Product p{};
      if (!(words >> what) || what != "product") continue;
      words >> p.m >> p.n >> p.k >> p.epilogue >> p.adds;
      for (i64& x : p.alignment) words >> x;
      for (i64& x : p.leading) words >> x;
      all.push_back(p);
    }
    return all;
  }

 private:
  std::vector<std::string> lines() const {
    std::ifstream file(path_);
    std::vector<std::string> all;
    for (std::string line; std::getline(file, line);) all.push_back(line);
    return all;
  }
  const TemporaryFolder folder_;
  const std::filesystem::path path_ = folder_ / "log";
};

}  // namespace spillway::test
