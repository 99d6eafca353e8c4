// An instruction that is being decoded. Each file of instructions has a function that takes the drafts it knows.
#pragma once
#include <stdexcept>
#include <string>
#include <vector>

#include "ptx/program.h"

namespace ptx {

/// Finds or makes operands. Implemented by the decoder.
class Operands {
 public:
  virtual ~Operands() = default;
  /// Returns a source of `bytes` bytes a lane: a register, a number, a special register or the address of a variable.
  virtual Operand source(const std::string& text, u8 bytes) = 0;
  virtual Operand destination(const std::string& text) = 0;
  /// Parses "[register+offset]" or "[variable+offset]". `space` becomes local if the variable is a parameter of a call.
  virtual Operand address(const std::string& text, i64& offset, Space& space) = 0;
};

struct Draft {
  std::string name;                    // "add"
  std::vector<std::string> modifiers;  // "rn", "f32"
  std::vector<Type> types;             // those of the modifiers that are types
  std::vector<std::string> arguments;
  Operands& operands;
  Instruction instruction;

  bool is(const char* modifier) const {
    for (const std::string& one : modifiers) {
      if (one == modifier) return true;
    }
    return false;
  }
  Type type() const { return types.empty() ? Type{} : types.back(); }
  [[noreturn]] void refuse(const std::string& why) const { throw std::runtime_error(why); }

  void add_to(const std::string& text, int bytes = -1) {
    Operand o = operands.destination(text);
    if (bytes >= 0 && !o.is_sink && o.bytes != bytes)
      refuse("the destination has " + std::to_string(o.bytes) + " bytes, expected " + std::to_string(bytes));
    if (instruction.to_count == instruction.to.size()) refuse("too many destinations");
    instruction.to[instruction.to_count++] = o;
  }
  void add_from(const std::string& text, u8 bytes) {
    if (instruction.from_count == instruction.from.size()) refuse("too many sources");
    const Operand o = operands.source(text, bytes);
    if (o.bytes != bytes) refuse("operand " + text + " has " + std::to_string(o.bytes) + " bytes, expected " + std::to_string(bytes));
    instruction.from[instruction.from_count++] = o;
  }
  /// Takes a source whose register may be wider than the type, as ld, st and cvt allow.
  void add_wide_from(const std::string& text, u8 bytes) {
    if (instruction.from_count == instruction.from.size()) refuse("too many sources");
    const Operand o = operands.source(text, bytes);
    if (o.bytes < bytes) refuse("operand " + text + " is narrower than its type");
    instruction.from[instruction.from_count++] = o;
  }
  /// Takes the elements of "{a, b}", or the one of "a".
  static std::vector<std::string> listed(const std::string& text) {
    return text.starts_with("{") ? split(text.substr(1, text.size() - 2), ',') : std::vector<std::string>{text};
  }
  /// Expects a destination and `sources` sources, all of the type's size.
  void plain(Execute execute, int sources, int result_bytes = -1) {
    if (static_cast<int>(arguments.size()) != sources + 1) refuse("expected " + std::to_string(sources) + " sources");
    instruction.execute = execute;
    add_to(arguments[0], result_bytes >= 0 ? result_bytes : type().bytes);
    for (int i = 1; i <= sources; ++i) add_from(arguments[static_cast<std::size_t>(i)], type().bytes);
  }
  /// Sets the space that a modifier names; it is generic if none does.
  void take_space() {
    for (const std::string& one : modifiers) {
      const std::string space = one.substr(0, one.find(':'));
      if (space == "global") instruction.space = Space::global;
      if (space == "shared") instruction.space = Space::shared;
      if (space == "local") instruction.space = Space::local;
      if (space == "param") instruction.space = Space::param;
      if (space == "const") instruction.space = Space::constant;
    }
  }
};

// Each returns whether it knows the instruction, and then completes the draft.
bool decode_integer(Draft& draft);
bool decode_bits(Draft& draft);
bool decode_floating(Draft& draft);
bool decode_approximate(Draft& draft);
bool decode_halves(Draft& draft);
bool decode_conversion(Draft& draft);
bool decode_comparison(Draft& draft);
bool decode_move(Draft& draft);
bool decode_memory(Draft& draft);
bool decode_copy(Draft& draft);
bool decode_warp(Draft& draft);
bool decode_tensor_core(Draft& draft);

}  // namespace ptx
