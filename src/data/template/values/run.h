// Run accounts for one rendering of a chat template: how many steps and bytes the rendering may still take, and its current line and
// message. fail() throws an error with that position. Every interpreter function that can fail or take long receives the Run. Memory that
// containers allocate is charged to the Run by their allocator, Metered. A Run is used by one thread, which runs one rendering at a time.
#pragma once
#include <ctime>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/types.h"

namespace spillway::data::chat {

struct Space;

/// The limit on how deep values, expressions and macro calls may be nested.
constexpr int kDeepest = 200;
/// The limit on the number of keyword arguments of a call, and on the number of parameters of a macro.
constexpr size_t kMostNamed = 1000;
/// The number of names whose comparison costs one step of the budget.
constexpr size_t kScannedInAStep = 16;
/// The limit on the length of the name of a variable, a parameter or a namespace attribute, in bytes.
constexpr size_t kLongestName = 256;

/// Charges `bytes` of memory to the rendering that this thread runs. Throws Error(data) if the rendering then exceeds its limit.
void charge(size_t bytes);
/// Gives back memory that was charged with charge().
void release(size_t bytes) noexcept;

/// The allocator of all containers that hold results of a rendering. Before each allocation, its bytes are charged to the rendering that
/// this thread runs; when the memory is freed, they are released. So no code can make texts, lists and dicts grow beyond the rendering's
/// limits. Outside of a rendering, for example for the constants of a syntax tree, nothing is charged.
template <class T>
struct Metered {
  using value_type = T;

  Metered() = default;
  template <class U>
  Metered(const Metered<U>& /*other*/) {}

  T* allocate(size_t count) {
    charge(count * sizeof(T));
    return std::allocator<T>().allocate(count);
  }
  void deallocate(T* items, size_t count) noexcept {
    std::allocator<T>().deallocate(items, count);
    release(count * sizeof(T));
  }
  bool operator==(const Metered&) const { return true; }
};

using String = std::basic_string<char, std::char_traits<char>, Metered<char>>;

template <class T>
using List = std::vector<T, Metered<T>>;

template <class T, class... Arguments>
std::shared_ptr<T> make_metered(Arguments&&... arguments) {
  return std::allocate_shared<T>(Metered<T>(), std::forward<Arguments>(arguments)...);
}

class Run {
 public:
  Run(const std::string& file, std::time_t now);
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  /// Throws Error(data) "[chat template] FILE, line N, message M: what", with the current line and message.
  [[noreturn]] void fail(const std::string& what) const;

  /// Counts bytes of input: of the template, or of the texts and values of the conversation. The limits are derived from their total.
  void count_read(size_t bytes) { read_bytes_ += static_cast<i64>(bytes); }
  /// Sets the limits. Call begin() after all input has been counted. From then on the rendering may take 10 million steps plus 16 for each
  /// byte of input. Its values may hold 64 MiB at a time plus 32 bytes for each byte of input, in addition to the conversation itself.
  void begin();

  /// Uses up steps, and fails if fewer steps are left. A step is the work for one value or for one node of the syntax tree, about 0.1 µs.
  void spend(i64 steps = 1) {
    if (steps > steps_left_) fail_steps();
    steps_left_ -= steps;
  }
  /// Spends the steps for copying or comparing `bytes` bytes: one step for each 256 bytes.
  void spend_bytes(size_t bytes) { spend(1 + static_cast<i64>(bytes / 256)); }
  /// Spends the steps for searching a text of `bytes` bytes or reading it character by character: one step for each 16 bytes.
  void spend_letters(size_t bytes) { spend(1 + static_cast<i64>(bytes / 16)); }

  /// Returns the bytes that the values, texts and scopes of the rendering occupy at present.
  i64 held_bytes() const { return held_bytes_; }
  i64 steps_left() const { return steps_left_; }

  /// Returns a new, empty namespace. The Run owns it, because namespaces in a template can refer to each other in a cycle.
  Space* new_space();

  std::time_t now() const { return now_; }

  int line = 1;     // the current line of the template
  i64 message = 0;  // the number of the current message, from 1; 0 outside of the loop over messages

  /// While a Level lives, it counts as one level of nested blocks and expressions, also across
  /// macro calls. The constructor fails beyond 1000 levels, which fit on a thread's stack.
  class Level {
   public:
    explicit Level(Run& run) : run_(run) {
      if (++run_.depth_ > 1000)
        run_.fail("expected macro calls that are nested less deeply, got 1000 blocks and expressions inside each other");
    }
    ~Level() { --run_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Run& run_;
  };

 private:
  friend void charge(size_t bytes);
  friend void release(size_t bytes) noexcept;
  void hold(size_t bytes);
  [[noreturn]] void fail_steps() const;

  // Makes `run` the rendering that this thread runs, for as long as the object lives.
  class Current {
   public:
    explicit Current(Run* run);
    ~Current();
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;

   private:
    Run* outer_;
  };

  const Current current_;  // this member is declared first, so that it is destroyed after everything that is charged to this Run
  const std::string& file_;
  std::time_t now_;
  int depth_ = 0;
  i64 read_bytes_ = 0, held_bytes_ = 0;
  i64 steps_, steps_left_, most_bytes_;  // the numbers of steps and of bytes are unlimited until begin() is called
  List<std::unique_ptr<Space>> spaces_;
};

/// Throws Error(data): "[chat template] FILE, line N: what". A long `what` is cut.
[[noreturn]] void fail_at(const std::string& file, int line, const std::string& what);

}  // namespace spillway::data::chat
