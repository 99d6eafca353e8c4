// Runs one block: its warps in a random order, the lanes of a warp together where they are at the same instruction.
#pragma once
#include "ptx/warp.h"

namespace ptx {

class BlockRunner {
 public:
  BlockRunner(const Program& program, const Launch& launch, std::vector<u8> parameters, Memory& memory, Counters& counters, Chance& chance);
  /// Throws Fault. place() then tells where.
  void run(u64 number);
  std::string place(const std::map<int, std::string>& files) const;

 private:
  void start(Warp& warp);
  void fill_specials(Warp& warp);
  void run_warp(Warp& warp, int most);
  void step(Warp& warp, std::size_t chosen, int& most);
  static void merge(Warp& warp);
  static void arrive(Warp& warp, std::size_t chosen, u32 mask);
  void gather(Warp& warp, std::size_t chosen, const Instruction& i, u32 mask);
  void open_barrier();
  [[noreturn]] void report_stuck(const Warp& warp) const;

  Block block_;
  const Warp* running_ = nullptr;
};

}  // namespace ptx
