// The syntax tree of a template. All nodes have one type with a few members. The comments in NodeKind tell
// which members each kind of node uses. The tree is immutable after parsing, so threads may share it.
#pragma once
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/template/values/operators.h"
#include "data/template/values/value.h"

namespace spillway::data::chat {

enum class NodeKind : u8 {
  // The kinds from here on are expressions. The comments name the members of Node that a kind uses.
  constant,     // a literal, in `constant`
  name,         // the variable `name`
  list,         // a list; kids: the items
  tuple,        // kids: the items; a tuple may also be the target of set and for
  dict,         // a dict literal; kids: key, value, key, value…
  negation,     // the expression `not` kids[0]
  minus,        // the expression `-` kids[0]
  plus,         // the expression `+` kids[0]
  binary,       // the operator `op` applied to kids[0] and kids[1]
  concat,       // the kids joined by `~`
  comparison,   // a chain: kids[0] comparisons[0] kids[1] comparisons[1] kids[2]…
  both,         // the expression `kids[0] and kids[1]`
  either,       // the expression `kids[0] or kids[1]`
  conditional,  // an inline if; kids: the value, the condition, the value for else (null if absent)
  attribute,    // the attribute `name` of kids[0]
  item,         // the element of kids[0] under the key kids[1]
  slice,        // the slice kids[0][kids[1]:kids[2]:kids[3]]; a kid is null if absent
  call,         // the call kids[0](kids[1]…, *more, named…, **more_named)
  // The filter `name`. kids[0] is the value to filter (null in a filter block); the further kids are arguments as in a call.
  filter,
  test,             // the test `name` on kids[0]; the other kids are arguments
  space_attribute,  // a target of set: the attribute names[0] of the namespace `name`
  // The kinds from here on are statements. The comments name the members of Node that a kind uses.
  data,            // plain text, in `name`
  print,           // a print statement; kids: the values to print, in order
  branch,          // an if statement; kids: the condition of each part (null for else); parts: the bodies
  loop,            // a for loop; kids: target, iterated value, condition (null if absent); parts: body, else; also uses `recursive`
  set,             // a set statement; kids: the target of the assignment, its value
  set_block,       // a set block; kids: target, filter (null if absent); parts[0] renders the text to assign
  macro,           // the definition of a macro, in `code`
  call_block,      // a call block; kids[0] is the call; `code` is the block's body, which the called macro gets as `caller`
  filter_block,    // a filter block; kids[0] is the filter; parts[0] renders the text to filter
  generation,      // a generation block; `code` is its body, as a macro without parameters
  with,            // a with statement; kids: a tuple of targets, a tuple of values; parts[0] is the body
  leave,           // the statement `break`
  next_iteration,  // the statement `continue`
};

struct Node;
using NodePtr = std::unique_ptr<Node>;

/// Names whose meaning in Jinja depends on where a template first reads or sets them.
constexpr std::array<std::string_view, 4> kSpecialNames = {"loop", "caller", "kwargs", "varargs"};
enum class Use : u8 { none, reads, sets };
/// Tells, for each name in kSpecialNames, whether a part of a template first reads or first sets that name.
using FirstUses = std::array<Use, kSpecialNames.size()>;

/// Statements that run in one scope, or in a part of one. `unset` lists names that no enclosing scope has and that these statements set
/// before they read them. Before such a name is set, Jinja treats it as undefined, even if the template has a variable of that name.
struct Block {
  std::vector<NodePtr> statements;
  std::vector<std::string> unset;
  std::optional<FirstUses> first_uses;  // the result of reads_unset(), kept so that each nested block is searched only once
};

struct MacroCode {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<NodePtr> defaults;  // the default values, which belong to the last parameters
  Block body;
  bool uses_caller = false, uses_kwargs = false, uses_varargs = false;
  bool names_caller = false;  // `caller` is one of the macro's parameters
};

struct Node {
  NodeKind kind;
  int line = 1;
  int height = 1;          // the height of the expression's tree
  bool uses_loop = false;  // for a loop: whether its variable `loop` is read
  bool recursive = false;  // for a loop: whether calling `loop` runs it again
  Operator op = Operator::add;
  std::string name;
  Value constant;
  std::vector<NodePtr> kids;
  std::vector<std::pair<std::string, NodePtr>> named;
  NodePtr more, more_named;  // the arguments after * and after ** in a call
  std::vector<Comparison> comparisons;
  std::vector<std::string> names;
  std::vector<Block> parts;
  std::unique_ptr<MacroCode> code;
};

}  // namespace spillway::data::chat
