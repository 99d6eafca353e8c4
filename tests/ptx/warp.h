// The state of a block that runs: its warps' registers, memory and places in the program.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "ptx/counters.h"
#include "ptx/memory.h"
#include "ptx/program.h"

namespace ptx {

/// Lanes of a warp that are at the same instruction.
struct Group {
  int at = 0;
  u32 lanes = 0;
  enum class State : u8 { runs, barrier, gathers } state = State::runs;
};

/// A cp.async that has not landed yet.
struct LateCopy {
  u64 to = 0;
  std::array<u8, 16> bytes{};  // what it copies, read when it was issued
  u32 count = 0;
  u32 group = 0;
};

struct Warp {
  std::array<u8*, banks> bank{};
  Block* block = nullptr;
  u32 index = 0;
  u32 alive = 0;   // lanes that have not ended
  u32 carry = 0;   // the carry flag of each lane
  u32 synced = 0;  // bar.warp.sync that the warp has passed since the block's last barrier
  std::vector<Group> groups;
  std::array<std::vector<LateCopy>, kLanes> copies;
  std::array<u32, kLanes> copy_groups{};  // committed by each lane
  std::vector<u8> registers, specials;
  const Instruction* now = nullptr;

  template <class T>
  const T* in(const Operand& o) const {
    return reinterpret_cast<const T*>(bank[o.bank] + o.at);
  }
  template <class T>
  T* out(const Operand& o) {
    return reinterpret_cast<T*>(bank[registers_bank] + o.at);
  }
  u32 predicate(const Operand& o) const {
    const u32 bits = *in<u32>(o);
    return o.is_negated ? ~bits : bits;
  }
  void set_predicate(const Operand& o, u32 bits, u32 mask) {
    if (o.is_sink) return;
    u32& old = *out<u32>(o);
    old = (old & ~mask) | (bits & mask);
  }
};

/// Draws what a GPU leaves undefined. Source: Steele, Lea, Flood: Fast splittable pseudorandom number generators (2014), splitmix64.
class Chance {
 public:
  explicit Chance(u64 seed) : state_(seed) {}
  u32 operator()() {
    u64 x = state_ += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return static_cast<u32>(x >> 32);
  }

 private:
  u64 state_;
};

struct Launch {
  std::array<unsigned, 3> blocks{1, 1, 1}, threads{1, 1, 1};
  std::size_t dynamic_shared_bytes = 0;
};

struct Block {
  const Program& program;
  const Launch& launch;
  std::vector<Warp> warps;
  std::vector<u8> parameters;
  Memory& memory;  // of the launch: checks and shadows
  Counters& counters;
  Chance& chance;
  u64 number = 0;
  std::array<unsigned, 3> index{};
  u32 barriers = 0;  // that the block has passed
  u32 threads = 0;
};

/// Calls f(lane) for the lanes of the mask.
template <class F>
inline void each_lane(u32 mask, F f) {
  for (; mask != 0; mask &= mask - 1) f(static_cast<u32>(__builtin_ctz(mask)));
}

/// Stores f(lane) for the lanes of the mask. f must be free of side effects: it is called for all lanes.
template <class R, class F>
inline void set_lanes(R* to, u32 mask, F f) {
  if (mask == kAllLanes) {
#pragma GCC ivdep
    for (u32 lane = 0; lane < kLanes; ++lane) to[lane] = f(lane);
  } else {
    R all[kLanes];
    for (u32 lane = 0; lane < kLanes; ++lane) all[lane] = f(lane);
    each_lane(mask, [&](u32 lane) { to[lane] = all[lane]; });
  }
}

/// Widens the lanes of a source whose register may be wider than its type: only the type's bytes count.
inline void load_wide(const Warp& w, const Operand& o, u64 (&to)[kLanes]) {
  const auto load = [&]<class T>(T) {
    const T* from = w.in<T>(o);
    for (u32 lane = 0; lane < kLanes; ++lane) to[lane] = from[lane];
  };
  o.bytes == 8 ? load(u64{}) : o.bytes == 4 ? load(u32{}) : o.bytes == 2 ? load(u16{}) : load(u8{});
}
/// Stores the lower bytes of each lane.
inline void store_wide(Warp& w, const Operand& o, u32 mask, const u64 (&from)[kLanes]) {
  if (o.is_sink) return;
  const auto store = [&]<class T>(T) { set_lanes(w.out<T>(o), mask, [&](u32 lane) { return static_cast<T>(from[lane]); }); };
  o.bytes == 8 ? store(u64{}) : o.bytes == 4 ? store(u32{}) : o.bytes == 2 ? store(u16{}) : store(u8{});
}

}  // namespace ptx
