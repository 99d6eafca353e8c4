#include "ptx/interpreter.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "ptx/block.h"

namespace ptx {
namespace {

// Kernels run one at a time, so that the watch for data races sees them in an order.
std::mutex& one_at_a_time() {
  static std::mutex one;
  return one;
}

}  // namespace

Loaded::Loaded(const std::string& text) : module_(parse_module(text)) {
  for (const auto& [name, v] : module_.variables) {
    if (v.space == Space::shared) continue;
    variables_.push_back(std::make_unique<u64[]>(v.bytes / 8 + 3));
    u8* at = reinterpret_cast<u8*>(variables_.back().get());
    at += (16 - reinterpret_cast<u64>(at) % 16) % 16;
    std::copy(v.initial.begin(), v.initial.end(), at);
    addresses_[name] = reinterpret_cast<u64>(at);
    add_piece(at, v.bytes, true);
  }
}

Loaded::~Loaded() {
  for (const auto& [name, at] : addresses_) remove_piece(reinterpret_cast<const void*>(at));
}

bool Loaded::has(const std::string& kernel) const {
  const auto found = module_.functions.find(kernel);
  return found != module_.functions.end() && found->second.is_kernel;
}

unsigned Loaded::most_threads(const std::string& kernel) const { return module_.functions.at(kernel).most_threads; }

std::vector<u8> Loaded::parameters_of(const std::string& kernel, void** arguments) const {
  std::vector<u8> all;
  std::size_t k = 0;
  for (const Variable& v : module_.functions.at(kernel).parameters) {
    const std::size_t at = (all.size() + v.align - 1) / v.align * v.align;
    all.resize(at + v.bytes);
    std::memcpy(all.data() + at, arguments[k++], v.bytes);
  }
  return all;
}

const Program& Loaded::program(const std::string& kernel) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Program>& program = programs_[kernel];
  if (!program) program = std::make_unique<Program>(decode(module_, kernel, addresses_));
  return *program;
}

std::string Loaded::run(const std::string& kernel, const Launch& launch, std::vector<u8> parameters, unsigned seed) {
  const Program* decoded = nullptr;
  try {
    decoded = &program(kernel);
  } catch (const std::exception& error) {
    return "kernel " + kernel + ": " + error.what();
  }
  const std::lock_guard lock(one_at_a_time());
  const u64 blocks = u64{launch.blocks[0]} * launch.blocks[1] * launch.blocks[2];
  const u32 threads = launch.threads[0] * launch.threads[1] * launch.threads[2];
  Counters counters;
  counters.launches = 1, counters.threads = blocks * threads;
  Chance chance(seed);
  // Memory for whole warps: a warp that is not full has lanes that never run.
  Memory memory(decoded->shared_bytes + launch.dynamic_shared_bytes, decoded->local_bytes, (threads + kLanes - 1) / kLanes * kLanes);
  BlockRunner runner(*decoded, launch, std::move(parameters), memory, counters, chance);
  // A stride without a common factor with the number of blocks visits each block once.
  const u64 first = chance() % blocks;
  u64 stride = 1 + chance() % blocks;
  while (std::gcd(stride, blocks) != 1) ++stride;
  std::string report;
  try {
    for (u64 i = 0; i < blocks; ++i) runner.run((first + i * stride) % blocks);
  } catch (const Fault& fault) {
    report = std::string(fault.what()) + "; " + runner.place(module_.files);
  }
  if (counts()) count(kernel, counters);
  return report;
}

}  // namespace ptx
