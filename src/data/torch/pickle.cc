#include "data/torch/pickle.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace spillway::data {

using Kind = PickleNode::Kind;

// Interprets the opcodes of Python's pickle stack machine. The values on its stack are nodes of the tree that it builds.
class PickleMachine {
 public:
  PickleMachine(const std::string& where, Pickle& out) : bytes_(out.bytes_), where_(where), out_(out) {}

  void run() {
    if (bytes_.size() > std::numeric_limits<u32>::max()) wrong("expected a pickle of less than 4 GiB");
    while (step(static_cast<u8>(take(1)[0]))) {
    }
    if (stack_.size() != 1 || !marks_.empty()) wrong("expected exactly one value at the end of the pickle");
    out_.root_ = stack_.back();
  }

 private:
  [[noreturn]] void wrong(const std::string& what) const {
    throw Error(ErrorCode::data, fmt::format("[pickle] {}: {}, at byte {}", where_, what, began_));
  }

  std::span<const std::byte> take(u64 count) {
    if (count > bytes_.size() - at_) wrong(fmt::format("expected {} more bytes, got {}", count, bytes_.size() - at_));
    const auto taken = bytes_.subspan(at_, static_cast<size_t>(count));
    at_ += static_cast<size_t>(count);
    return taken;
  }
  u64 number(int width) {  // reads a little-endian unsigned number of `width` bytes
    u64 value = 0;
    const auto raw = take(static_cast<u64>(width));
    for (int i = 0; i < width; ++i) value |= static_cast<u64>(raw[static_cast<size_t>(i)]) << (8 * i);
    return value;
  }
  std::string line() {
    std::string text;
    for (char c; (c = static_cast<char>(take(1)[0])) != '\n';) text += c;
    return text;
  }

  PickleRef make(PickleNode node) {
    out_.budget_.hold(sizeof node);
    out_.nodes_.push_back(node);
    return static_cast<PickleRef>(out_.nodes_.size() - 1);
  }
  // Pushes a value. Popping returns nothing to the memory budget, so the stack is charged only when it grows beyond its previous maximum.
  void push_ref(PickleRef ref) {
    stack_.push_back(ref);
    if (stack_.size() > highest_stack_) out_.budget_.hold(sizeof ref), highest_stack_ = stack_.size();
  }
  void push(PickleNode node) { push_ref(make(node)); }
  void push_integer(i64 value) { push({.kind = Kind::integer, .bits = static_cast<u64>(value)}); }
  // Pushes a text node. The node refers to the text's bytes in the pickle instead of copying them.
  void push_text(Kind kind, u64 bytes) {
    const u64 begin = at_;
    take(bytes);
    push({.kind = kind, .count = static_cast<u32>(bytes), .bits = begin});
  }
  void push_global(std::string name) {
    out_.budget_.hold(sizeof name + name.size());
    out_.globals_.push_back(std::move(name));
    push({.kind = Kind::global, .bits = out_.globals_.size() - 1});
  }

  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  void expect(size_t values) const {
    if (stack_.size() - floor() < values) wrong("expected a value on the stack, which is empty");
  }
  PickleRef pop() {
    expect(1);
    const PickleRef top = stack_.back();
    stack_.pop_back();
    return top;
  }
  // Returns the topmost `count` values of the stack. The result is valid until these values are dropped.
  std::span<const PickleRef> last(size_t count) const {
    expect(count);
    return std::span(stack_).last(count);
  }
  std::span<const PickleRef> since_mark() const {
    if (marks_.empty()) wrong("expected a mark on the stack, got none");
    return last(stack_.size() - marks_.back());
  }
  void drop(size_t count) { stack_.resize(stack_.size() - count); }
  void drop_mark() {
    stack_.resize(marks_.back());
    marks_.pop_back();
  }
  PickleNode& top() {
    expect(1);
    return out_.nodes_[stack_.back()];
  }

  static bool grows(Kind kind) { return kind == Kind::list || kind == Kind::dict || kind == Kind::set; }
  // Reserves room for `count` elements of a container and returns the index at which they begin.
  u64 room(size_t count) {
    out_.budget_.hold(count * sizeof(PickleRef));
    out_.refs_.resize(out_.refs_.size() + count, Pickle::kNone);
    return out_.refs_.size() - count;
  }
  PickleRef make_container(Kind kind, std::span<const PickleRef> items) {
    const size_t count = items.size();
    const size_t more = kind == Kind::object ? count + 2 : grows(kind) && count > 0 ? std::bit_ceil(count) : count;
    const u64 begin = room(more);
    std::ranges::copy(items, out_.refs_.begin() + static_cast<std::ptrdiff_t>(begin));
    return make({.kind = kind, .count = static_cast<u32>(count), .bits = begin});
  }
  // Replaces the topmost `count` values of the stack by one container that holds them.
  void push_last(Kind kind, size_t count) {
    const PickleRef made = make_container(kind, last(count));
    drop(count);
    push_ref(made);
  }
  void push_since_mark(Kind kind) {
    const auto items = since_mark();
    if (kind == Kind::dict && items.size() % 2 != 0) wrong("expected a value for each key of a dictionary");
    const PickleRef made = make_container(kind, items);
    drop_mark();
    push_ref(made);
  }

  void append(PickleRef container, std::span<const PickleRef> more) {
    PickleNode& into = out_.nodes_[container];
    const size_t before = into.count, after = before + more.size();
    if (before == 0 || std::bit_ceil(before) < after) {
      const u64 begin = more.empty() ? into.bits : room(std::bit_ceil(after));
      std::copy_n(out_.refs_.begin() + static_cast<std::ptrdiff_t>(into.bits), before,
                  out_.refs_.begin() + static_cast<std::ptrdiff_t>(begin));
      into.bits = begin;
    }
    std::ranges::copy(more, out_.refs_.begin() + static_cast<std::ptrdiff_t>(into.bits + before));
    into.count = static_cast<u32>(after);
  }
  // Adds the topmost `count` values of the stack to the value below them, which is a container or an object.
  void add(size_t count, Kind wanted) {
    expect(count + 1);
    PickleRef into = stack_[stack_.size() - count - 1];
    const Kind kind = out_.nodes_[into].kind;
    if (kind != wanted && kind != Kind::object) wrong("expected a container that takes values, got another object");
    if (wanted == Kind::dict && count % 2 != 0) wrong("expected a value for each key of a dictionary");
    if (kind == Kind::object) into = entries_of(into);
    append(into, last(count));
    drop(count);
  }
  void add_since_mark(Kind wanted) {
    const size_t count = since_mark().size();
    marks_.pop_back();
    add(count, wanted);
  }
  // Returns the list of the values that were added to an object. The first call creates the list.
  PickleRef entries_of(PickleRef object) {
    const PickleNode& node = out_.nodes_[object];
    const size_t at = static_cast<size_t>(node.bits) + node.count + 1;
    if (out_.refs_[at] == Pickle::kNone) {
      const PickleRef made = make({.kind = Kind::list});
      out_.refs_[at] = made;
    }
    return out_.refs_[at];
  }

  // Stores the value on top of the stack in the memo, from which later opcodes fetch values by number. Python numbers memo
  // entries from 0 and spends at least one byte of the pickle on each. A number that is too large to come from Python is refused.
  void remember(u64 key) {
    expect(1);
    if (key >= at_) wrong(fmt::format("expected memo entries that are numbered from 0, got number {}", key));
    if (key >= memo_.size()) {
      out_.budget_.hold((key + 1 - memo_.size()) * sizeof(PickleRef));
      memo_.resize(static_cast<size_t>(key) + 1, Pickle::kNone);
    }
    remembered_ += memo_[static_cast<size_t>(key)] == Pickle::kNone ? 1 : 0;
    memo_[static_cast<size_t>(key)] = stack_.back();
  }
  void recall(u64 key) {
    if (key >= memo_.size() || memo_[static_cast<size_t>(key)] == Pickle::kNone) wrong(fmt::format("memo entry {} was never stored", key));
    push_ref(memo_[static_cast<size_t>(key)]);
  }

  // Pushes an integer of `count` bytes: two's complement, little-endian.
  void push_long(u64 count) {
    if (count > 8) return push_text(Kind::big_integer, count);
    const auto raw = take(count);
    u64 value = 0;
    for (size_t i = 0; i < raw.size(); ++i) value |= static_cast<u64>(raw[i]) << (8 * i);
    const bool negative = !raw.empty() && (static_cast<u8>(raw.back()) & 0x80) != 0;
    if (negative && raw.size() < 8) value |= ~u64{0} << (8 * raw.size());
    push_integer(static_cast<i64>(value));
  }
  void push_real() {
    u64 bits = 0;
    for (const std::byte b : take(8)) bits = bits << 8 | static_cast<u64>(b);
    push({.kind = Kind::real, .bits = bits});
  }
  void push_named_global() {
    std::string module = line();
    push_global(module + "." + line());
  }
  void push_stack_global() {
    const PickleNode &name = out_.at(pop()), &module = out_.at(pop());
    if (name.kind != Kind::text || module.kind != Kind::text) wrong("expected two texts that name a Python global, got something else");
    push_global(fmt::format("{}.{}", out_.text(module), out_.text(name)));
  }
  void push_mark() {
    marks_.push_back(static_cast<u32>(stack_.size()));
    if (marks_.size() > highest_marks_) out_.budget_.hold(sizeof(u32)), highest_marks_ = marks_.size();
  }
  void build() {
    const PickleRef state = pop();
    if (top().kind != Kind::object) wrong("expected an object that takes a state, got another value");
    out_.refs_[static_cast<size_t>(top().bits) + top().count] = state;
  }

  // Executes one opcode. Returns false at the end of the pickle.
  bool step(u8 opcode) {
    began_ = at_ - 1;
    switch (opcode) {
      case 0x80:  // the opcode PROTO, with the version of the protocol
        if (const u64 protocol = number(1); protocol < 2 || protocol > 5) wrong(fmt::format("expected protocol 2 to 5, got {}", protocol));
        return true;
      case 0x95:  // the opcode FRAME, with the length of a frame, which is ignored
        return number(8), true;
      case '.':
        return false;
      case '(':
        return push_mark(), true;
      case '0':
        return pop(), true;
      case '1':
        return since_mark(), drop_mark(), true;
      case '2':
        return expect(1), push_ref(stack_.back()), true;
      case 'N':
        return push({}), true;
      case 0x88:
      case 0x89:
        return push({.kind = Kind::boolean, .bits = opcode == 0x88}), true;
      case 'J':
        return push_integer(static_cast<i32>(number(4))), true;
      case 'K':
        return push_integer(static_cast<i64>(number(1))), true;
      case 'M':
        return push_integer(static_cast<i64>(number(2))), true;
      case 0x8a:  // the opcodes LONG1 and LONG4: integers of any length
        return push_long(number(1)), true;
      case 0x8b:
        return push_long(number(4)), true;
      case 'G':
        return push_real(), true;
      case 0x8c:  // the text opcodes, which differ in the width of the length that precedes the text
        return push_text(Kind::text, number(1)), true;
      case 'X':
        return push_text(Kind::text, number(4)), true;
      case 0x8d:
        return push_text(Kind::text, number(8)), true;
      case 'U':  // an opcode for strings of Python 2
        return push_text(Kind::text, number(1)), true;
      case 'T':
        return push_text(Kind::text, number(4)), true;
      case 'C':
        return push_text(Kind::bytes, number(1)), true;
      case 'B':
        return push_text(Kind::bytes, number(4)), true;
      case 0x8e:
      case 0x96:
        return push_text(Kind::bytes, number(8)), true;
      case ']':
        return push_last(Kind::list, 0), true;
      case '}':
        return push_last(Kind::dict, 0), true;
      case ')':
        return push_last(Kind::tuple, 0), true;
      case 0x8f:
        return push_last(Kind::set, 0), true;
      case 'l':
        return push_since_mark(Kind::list), true;
      case 't':
        return push_since_mark(Kind::tuple), true;
      case 0x91:
        return push_since_mark(Kind::set), true;
      case 'd':
        return push_since_mark(Kind::dict), true;
      case 0x85:
      case 0x86:
      case 0x87:
        return push_last(Kind::tuple, opcode - 0x84u), true;
      case 'a':
        return add(1, Kind::list), true;
      case 'e':
        return add_since_mark(Kind::list), true;
      case 0x90:
        return add_since_mark(Kind::set), true;
      case 's':
        return add(2, Kind::dict), true;
      case 'u':
        return add_since_mark(Kind::dict), true;
      case 'q':
        return remember(number(1)), true;
      case 'r':
        return remember(number(4)), true;
      case 0x94:
        return remember(remembered_), true;
      case 'h':
        return recall(number(1)), true;
      case 'j':
        return recall(number(4)), true;
      case 'c':
        return push_named_global(), true;
      case 0x93:
        return push_stack_global(), true;
      case 'R':
      case 0x81:  // the opcodes REDUCE and NEWOBJ: calls
        return push_last(Kind::object, 2), true;
      case 0x92:  // the opcode NEWOBJ_EX: a call with keyword arguments
        return push_last(Kind::object, 3), true;
      case 'b':
        return build(), true;
      case 'Q':
        return push_last(Kind::persistent, 1), true;
      default:
        wrong(fmt::format("0x{:02x} is not a supported opcode of protocols 2 to 5", opcode));
    }
  }

  const std::span<const std::byte> bytes_;
  const std::string& where_;
  Pickle& out_;
  size_t at_ = 0, began_ = 0;
  std::vector<PickleRef> stack_;
  std::vector<u32> marks_;
  size_t highest_stack_ = 0, highest_marks_ = 0;
  std::vector<PickleRef> memo_;  // the values that were stored in the memo, by memo number
  u64 remembered_ = 0;
};

Pickle::Pickle(std::vector<std::byte> bytes, const std::string& where)
    : bytes_(std::move(bytes)), budget_("[pickle] " + where, bytes_.size()) {
  PickleMachine(where, *this).run();
}

std::string_view Pickle::text(const PickleNode& node) const {
  if (node.kind == Kind::global) return globals_[static_cast<size_t>(node.bits)];
  if (node.kind != Kind::text && node.kind != Kind::bytes && node.kind != Kind::big_integer) return {};
  return {reinterpret_cast<const char*>(bytes_.data()) + node.bits, node.count};
}

std::span<const PickleRef> Pickle::items(const PickleNode& node) const {
  constexpr Kind kContainers[] = {Kind::list, Kind::tuple, Kind::dict, Kind::set, Kind::persistent, Kind::object};
  if (std::ranges::find(kContainers, node.kind) == std::end(kContainers)) return {};
  return std::span(refs_).subspan(static_cast<size_t>(node.bits), node.count);
}

std::span<const PickleRef> Pickle::entries(const PickleNode& object) const {
  if (object.kind != Kind::object) return {};
  const PickleRef list = refs_[static_cast<size_t>(object.bits) + object.count + 1];
  return list == kNone ? std::span<const PickleRef>() : items(nodes_[list]);
}

const PickleNode* Pickle::state(const PickleNode& object) const {
  if (object.kind != Kind::object) return nullptr;
  const PickleRef state = refs_[static_cast<size_t>(object.bits) + object.count];
  return state == kNone ? nullptr : &nodes_[state];
}

}  // namespace spillway::data
