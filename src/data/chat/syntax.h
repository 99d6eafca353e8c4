// The syntax tree of a template: one kind of node with a few slots, whose meaning per kind stands here. It never changes once parsed, so
// threads may share it.
#pragma once
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/chat/operators.h"
#include "data/chat/value.h"

namespace spillway::data::chat {

enum class NodeKind : u8 {
  // Expressions.
  constant,         // constant
  name,             // name
  list,             // kids
  tuple,            // kids; also a target of set and for
  dict,             // kids: key, value, key, value…
  negation,         // kids[0]
  minus,            // kids[0]
  plus,             // kids[0]
  binary,           // op, kids[0], kids[1]
  concat,           // kids
  comparison,       // kids[0] comparisons[0] kids[1] comparisons[1] kids[2]…
  both,             // kids[0] and kids[1]
  either,           // kids[0] or kids[1]
  conditional,      // kids: value, condition, value otherwise (null when absent)
  attribute,        // kids[0].name
  item,             // kids[0][kids[1]]
  slice,            // kids[0][kids[1]:kids[2]:kids[3]], null where absent
  call,             // kids[0](kids[1]…, *more, named…, **more_named)
  filter,           // name; kids[0] is filtered (null in a filter block), the rest are arguments as of a call
  test,             // name; kids[0] is tested, the rest are arguments as of a call
  space_attribute,  // a target of set: the attribute names[0] of the namespace `name`
  // Statements.
  data,            // name is the text
  print,           // kids, one behind the other
  branch,          // kids: condition of each part (null for else); parts
  loop,            // kids: target, iterated, condition (null when absent); parts: body, else; recursive
  set,             // kids: target, value
  set_block,       // kids: target, filter (null when absent); parts[0]
  macro,           // code
  call_block,      // kids[0] is the call; code is the caller
  filter_block,    // kids[0] is the filter; parts[0]
  generation,      // code is what it renders, a macro without parameters
  with,            // kids: a tuple of targets, a tuple of values; parts[0]
  leave,           // break
  next_iteration,  // continue
};

struct Node;
using NodePtr = std::unique_ptr<Node>;

/// Names whose meaning Jinja decides by where a template first reads or sets them.
constexpr std::array<std::string_view, 4> kSpecialNames = {"loop", "caller", "kwargs", "varargs"};
enum class Use : u8 { none, reads, sets };
/// By the names above, what a part of a template does first.
using FirstUses = std::array<Use, kSpecialNames.size()>;

/// Statements that run in a scope, or the part of one. `unset` are names that are set here before they are read and exist in no scope
/// around: Jinja sees nothing under them until then, not even a variable of that name.
struct Block {
  std::vector<NodePtr> statements;
  std::vector<std::string> unset;
  std::optional<FirstUses> first_uses;  // kept once found, so that blocks inside each other are looked through once
};

struct MacroCode {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<NodePtr> defaults;  // of the last parameters
  Block body;
  bool uses_caller = false, uses_kwargs = false, uses_varargs = false;
  bool names_caller = false;  // `caller` is one of the parameters
};

struct Node {
  NodeKind kind;
  int line = 1;
  int height = 1;          // of the expression
  bool uses_loop = false;  // of a loop: its variable `loop` is read
  bool recursive = false;  // of a loop: calling `loop` goes through it again
  Operator op = Operator::add;
  std::string name;
  Value constant;
  std::vector<NodePtr> kids;
  std::vector<std::pair<std::string, NodePtr>> named;
  NodePtr more, more_named;  // behind * and ** in a call
  std::vector<Comparison> comparisons;
  std::vector<std::string> names;
  std::vector<Block> parts;
  std::unique_ptr<MacroCode> code;
};

}  // namespace spillway::data::chat
