// A kernel after decoding: compact instructions, each with the function that executes it for the lanes of a warp.
#pragma once
#include <array>
#include <map>
#include <string>
#include <vector>

#include "ptx/module.h"
#include "ptx/types.h"

namespace ptx {

struct Warp;
struct Instruction;
/// Executes an instruction for the lanes in `mask`, of which there is at least one.
using Execute = void (*)(Warp& warp, const Instruction& instruction, u32 mask);

/// Says where an operand is: the warp's bank, the byte in it, and the bytes that each lane has there. The 32 lanes lie one behind
/// the other. A predicate is one word for all lanes, and its `bytes` is 0.
struct Operand {
  u32 at = 0;
  u8 bank = 0, bytes = 0;
  bool is_sink = false;     // "_": the result is not stored
  bool is_negated = false;  // of a predicate: "!"
};
enum Bank : u8 { registers_bank, constants_bank, specials_bank, banks };

/// Says what an instruction does besides executing a function.
enum class Flow : u8 { next, branch, branch_indexed, end, barrier, gather };  // gather: waits until all lanes of its mask are here

struct Instruction {
  Execute execute = nullptr;
  Flow flow = Flow::next;
  Space space = Space::generic;
  u8 vector = 1;  // elements of a vector load or store
  u8 to_count = 0, from_count = 0;
  bool has_guard = false, flush = false, saturate = false;  // flush: .ftz
  int rounding = 0;                                         // of <cfenv>; 0 is to nearest
  int mode = 0, mode2 = 0;
  Type type, type2;
  Operand guard, mask;  // mask: which lanes must be here, for Flow::gather
  std::array<Operand, 8> to;
  std::array<Operand, 20> from;
  i64 offset = 0, offset2 = 0;
  int target = -1;
  std::vector<int> targets;
  int line = 0, source_line = 0, source_file = 0;
  std::string text;
};

enum class Special : u8 {
  tid_x,
  tid_y,
  tid_z,
  ntid_x,
  ntid_y,
  ntid_z,
  ctaid_x,
  ctaid_y,
  ctaid_z,
  nctaid_x,
  nctaid_y,
  nctaid_z,
  laneid,
  warpid,
  lanemask_eq,
  lanemask_lt,
  lanemask_le,
  lanemask_gt,
  lanemask_ge,
  zero,
  count
};

struct Program {
  std::string name;
  std::vector<Instruction> code;
  std::vector<Variable> parameters;
  std::vector<std::size_t> parameter_offsets;
  std::size_t parameter_bytes = 0;
  std::size_t register_bytes = 0;  // of a warp
  std::vector<u8> constants;       // the constants' bank
  std::size_t shared_bytes = 0;    // static; dynamic shared memory begins there
  std::size_t local_bytes = 0;     // of a thread
  unsigned most_threads = 1024;
};

/// The generic address space: windows for shared and local memory and parameters; all else is global memory.
constexpr u64 kSharedWindow = 0x1000000000000000, kLocalWindow = 0x2000000000000000, kParamWindow = 0x3000000000000000;
constexpr u64 kWindowMask = 0xf000000000000000;
constexpr u64 window_of(Space space) {
  return space == Space::shared ? kSharedWindow : space == Space::local ? kLocalWindow : space == Space::param ? kParamWindow : 0;
}

/// Decodes a kernel. `variables` gives the addresses of the module's variables in global and constant memory. Throws
/// std::runtime_error, which names the instruction and its line, if the kernel has one that is not known.
Program decode(const Module& module, const std::string& kernel, const std::map<std::string, u64>& variables);

}  // namespace ptx
