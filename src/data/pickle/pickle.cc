#include "data/pickle/pickle.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <unordered_map>

#include "base/error.h"

namespace spillway::data {

using Kind = PickleNode::Kind;

// Python's stack machine, whose values are nodes.
class PickleMachine {
 public:
  PickleMachine(std::span<const std::byte> bytes, const std::string& where, Pickle& out) : bytes_(bytes), where_(where), out_(out) {}

  void run() {
    while (step(static_cast<u8>(take(1)[0]))) {
    }
    if (stack_.size() != 1 || !marks_.empty()) wrong("expected one value at its end");
    out_.root_ = stack_.back();
  }

 private:
  [[noreturn]] void wrong(const std::string& what) const {
    throw Error(ErrorCode::data, fmt::format("[pickle] {}: {}, at byte {}", where_, what, began_));
  }

  std::span<const std::byte> take(u64 count) {
    if (count > bytes_.size() - at_) wrong(fmt::format("expected {} bytes more, and there are {}", count, bytes_.size() - at_));
    const auto taken = bytes_.subspan(at_, static_cast<size_t>(count));
    at_ += static_cast<size_t>(count);
    return taken;
  }
  u64 number(int width) {  // little-endian, unsigned
    u64 value = 0;
    const auto raw = take(static_cast<u64>(width));
    for (int i = 0; i < width; ++i) value |= static_cast<u64>(raw[static_cast<size_t>(i)]) << (8 * i);
    return value;
  }
  std::string chars(u64 count) {
    const auto raw = take(count);
    return {reinterpret_cast<const char*>(raw.data()), raw.size()};
  }
  std::string line() {
    std::string text;
    for (char c; (c = static_cast<char>(take(1)[0])) != '\n';) text += c;
    return text;
  }

  PickleRef make(PickleNode node) {
    if (out_.nodes_.size() == kMostPickleNodes) wrong(fmt::format("expected at most {} values", kMostPickleNodes));
    out_.nodes_.push_back(std::move(node));
    return static_cast<PickleRef>(out_.nodes_.size() - 1);
  }
  void push(PickleNode node) { stack_.push_back(make(std::move(node))); }
  void push(Kind kind, std::string text) { push({.kind = kind, .text = std::move(text)}); }
  void push(Kind kind, std::vector<PickleRef> items) { push({.kind = kind, .items = std::move(items)}); }
  void push_integer(i64 value) { push({.kind = Kind::integer, .integer = value}); }

  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  void expect(size_t values) const {
    if (stack_.size() - floor() < values) wrong("its stack is empty");
  }
  PickleRef pop() {
    expect(1);
    const PickleRef top = stack_.back();
    stack_.pop_back();
    return top;
  }
  std::vector<PickleRef> pop(size_t count) {
    expect(count);
    std::vector<PickleRef> popped(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return popped;
  }
  std::vector<PickleRef> pop_mark() {
    if (marks_.empty()) wrong("expected a mark");
    std::vector<PickleRef> popped = pop(stack_.size() - marks_.back());
    marks_.pop_back();
    return popped;
  }
  PickleNode& top() {
    expect(1);
    return out_.nodes_[stack_.back()];
  }

  // Into a container, or into what a call gave.
  void add(const std::vector<PickleRef>& more, Kind wanted) {
    PickleNode& into = top();
    if (into.kind != wanted && into.kind != Kind::object) wrong("expected a container to put values into");
    if (wanted == Kind::dict && more.size() % 2 != 0) wrong("expected a value for each key");
    auto& list = into.kind == Kind::object ? into.entries : into.items;
    list.insert(list.end(), more.begin(), more.end());
  }

  void remember(u64 key) {
    expect(1);
    memo_[key] = stack_.back();
  }
  void recall(u64 key) {
    const auto found = memo_.find(key);
    if (found == memo_.end()) wrong(fmt::format("value {} was never remembered", key));
    stack_.push_back(found->second);
  }

  // Two's complement, little-endian, of any length.
  void push_long(u64 count) {
    const auto raw = take(count);
    if (raw.size() > 8) return push({.kind = Kind::integer, .text = {reinterpret_cast<const char*>(raw.data()), raw.size()}});
    u64 value = 0;
    for (size_t i = 0; i < raw.size(); ++i) value |= static_cast<u64>(raw[i]) << (8 * i);
    const bool negative = !raw.empty() && (static_cast<u8>(raw.back()) & 0x80) != 0;
    if (negative && raw.size() < 8) value |= ~u64{0} << (8 * raw.size());
    push_integer(static_cast<i64>(value));
  }
  void push_real() {
    u64 bits = 0;
    for (const std::byte b : take(8)) bits = bits << 8 | static_cast<u64>(b);
    push({.kind = Kind::real, .real = std::bit_cast<double>(bits)});
  }
  void push_global() {
    std::string module = line();
    push(Kind::global, module + "." + line());
  }
  void push_stack_global() {
    const PickleRef name = pop(), module = pop();
    if (out_.at(name).kind != Kind::text || out_.at(module).kind != Kind::text) wrong("expected the name of a global");
    push(Kind::global, out_.at(module).text + "." + out_.at(name).text);
  }
  void build() {
    const PickleRef state = pop();
    if (top().kind != Kind::object) wrong("expected an object to give a state to");
    top().state = {state};
  }

  // False at the end.
  bool step(u8 opcode) {
    began_ = at_ - 1;
    switch (opcode) {
      case 0x80:  // PROTO
        if (const u64 protocol = number(1); protocol < 2 || protocol > 5) wrong(fmt::format("expected protocol 2 to 5, got {}", protocol));
        return true;
      case 0x95:  // FRAME
        return number(8), true;
      case '.':
        return false;
      case '(':
        return marks_.push_back(stack_.size()), true;
      case '0':
        return pop(), true;
      case '1':
        return pop_mark(), true;
      case '2':
        return expect(1), stack_.push_back(stack_.back()), true;
      case 'N':
        return push({}), true;
      case 0x88:
      case 0x89:
        return push({.kind = Kind::boolean, .integer = opcode == 0x88}), true;
      case 'J':
        return push_integer(static_cast<i32>(number(4))), true;
      case 'K':
        return push_integer(static_cast<i64>(number(1))), true;
      case 'M':
        return push_integer(static_cast<i64>(number(2))), true;
      case 0x8a:  // LONG1, LONG4
        return push_long(number(1)), true;
      case 0x8b:
        return push_long(number(4)), true;
      case 'G':
        return push_real(), true;
      case 0x8c:  // texts, by the width of their length
        return push(Kind::text, chars(number(1))), true;
      case 'X':
        return push(Kind::text, chars(number(4))), true;
      case 0x8d:
        return push(Kind::text, chars(number(8))), true;
      case 'U':  // Python 2's
        return push(Kind::text, chars(number(1))), true;
      case 'T':
        return push(Kind::text, chars(number(4))), true;
      case 'C':
        return push(Kind::bytes, chars(number(1))), true;
      case 'B':
        return push(Kind::bytes, chars(number(4))), true;
      case 0x8e:
      case 0x96:
        return push(Kind::bytes, chars(number(8))), true;
      case ']':
        return push(Kind::list, std::vector<PickleRef>()), true;
      case '}':
        return push(Kind::dict, std::vector<PickleRef>()), true;
      case ')':
        return push(Kind::tuple, std::vector<PickleRef>()), true;
      case 0x8f:
        return push(Kind::set, std::vector<PickleRef>()), true;
      case 'l':
        return push(Kind::list, pop_mark()), true;
      case 't':
        return push(Kind::tuple, pop_mark()), true;
      case 0x91:
        return push(Kind::set, pop_mark()), true;
      case 'd': {
        std::vector<PickleRef> all = pop_mark();
        push(Kind::dict, std::vector<PickleRef>());
        return add(all, Kind::dict), true;
      }
      case 0x85:
      case 0x86:
      case 0x87:
        return push(Kind::tuple, pop(opcode - 0x84u)), true;
      case 'a': {
        const std::vector<PickleRef> one = pop(1);
        return add(one, Kind::list), true;
      }
      case 'e': {
        const std::vector<PickleRef> all = pop_mark();
        return add(all, Kind::list), true;
      }
      case 0x90: {
        const std::vector<PickleRef> all = pop_mark();
        return add(all, Kind::set), true;
      }
      case 's': {
        const std::vector<PickleRef> pair = pop(2);
        return add(pair, Kind::dict), true;
      }
      case 'u': {
        const std::vector<PickleRef> all = pop_mark();
        return add(all, Kind::dict), true;
      }
      case 'q':
        return remember(number(1)), true;
      case 'r':
        return remember(number(4)), true;
      case 0x94:
        return remember(memo_.size()), true;
      case 'h':
        return recall(number(1)), true;
      case 'j':
        return recall(number(4)), true;
      case 'c':
        return push_global(), true;
      case 0x93:
        return push_stack_global(), true;
      case 'R':
      case 0x81:  // REDUCE, NEWOBJ
        return push(Kind::object, pop(2)), true;
      case 0x92:  // NEWOBJ_EX
        return push(Kind::object, pop(3)), true;
      case 'b':
        return build(), true;
      case 'Q':
        return push(Kind::persistent, pop(1)), true;
      default:
        wrong(fmt::format("0x{:02x} is no opcode of protocols 2 to 5 that is read here", opcode));
    }
  }

  const std::span<const std::byte> bytes_;
  const std::string& where_;
  Pickle& out_;
  size_t at_ = 0, began_ = 0;
  std::vector<PickleRef> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<u64, PickleRef> memo_;
};

Pickle::Pickle(std::span<const std::byte> bytes, const std::string& where) { PickleMachine(bytes, where, *this).run(); }

}  // namespace spillway::data
