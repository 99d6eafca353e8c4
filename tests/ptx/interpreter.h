// Runs kernels from the text of their PTX, as nvcc writes it, and reports what a GPU would do wrong silently.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ptx/module.h"
#include "ptx/warp.h"

namespace ptx {

/// A module that is loaded: its kernels are decoded at their first launch. Thread-safe.
class Loaded {
 public:
  /// Throws std::runtime_error, which names the line, if the text is not PTX.
  explicit Loaded(const std::string& text);
  ~Loaded();
  Loaded(const Loaded&) = delete;
  Loaded& operator=(const Loaded&) = delete;

  bool has(const std::string& kernel) const;
  /// Copies the parameters to which `arguments` points, as cudaLaunchKernel takes them.
  std::vector<u8> parameters_of(const std::string& kernel, void** arguments) const;
  unsigned most_threads(const std::string& kernel) const;
  /// Runs all blocks, one after the other, in an order that `seed` draws. Returns an empty string, or the report of the first fault:
  /// what, and the kernel, the line of its PTX, the source line, the launch, the block and the thread.
  std::string run(const std::string& kernel, const Launch& launch, std::vector<u8> parameters, unsigned seed);

 private:
  const Program& program(const std::string& kernel);

  Module module_;
  std::mutex mutex_;  // protects programs_
  std::map<std::string, std::unique_ptr<Program>> programs_;
  std::map<std::string, u64> addresses_;  // of variables in global and constant memory
  std::vector<std::unique_ptr<u64[]>> variables_;
};

}  // namespace ptx
