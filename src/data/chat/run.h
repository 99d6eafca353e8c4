// Run is the account of one rendering of a chat template: its limits on steps and memory, its current position, and its way to fail. Every
// interpreter function that can fail or take long receives it. Memory that containers allocate is charged to it by their allocator,
// Metered. A Run is used by one thread, which runs one rendering at a time.
#pragma once
#include <ctime>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/types.h"

namespace spillway::data::chat {

struct Space;

/// Limit on the nesting of values and expressions, and of macro calls.
constexpr int kDeepest = 200;
/// Limit on the keyword arguments of a call and on the parameters of a macro.
constexpr size_t kMostNamed = 1000;
/// How many names are compared for one step of the budget.
constexpr size_t kScannedInAStep = 16;
/// Limit on the length of the name of a variable, a parameter or a namespace attribute, in bytes.
constexpr size_t kLongestName = 256;

/// Charges `bytes` of memory to the rendering on this thread. Throws Error(data) if its limit is exceeded.
void charge(size_t bytes);
/// Releases memory that charge() has charged.
void release(size_t bytes) noexcept;

/// The allocator of all containers that hold results of a rendering. Each allocation is charged to the rendering of this thread before it
/// is made, and released when it is freed. So texts, lists and dicts cannot grow beyond the rendering's limits, whoever makes them. Outside
/// of a rendering, for example for the constants of a syntax tree, nothing is charged.
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

  /// Throws Error(data): "[chat template] FILE, line N, message M: what".
  [[noreturn]] void fail(const std::string& what) const;

  /// Counts bytes of input (the template, or texts and values of the conversation), from which the limits are derived.
  void count_read(size_t bytes) { read_bytes_ += static_cast<i64>(bytes); }
  /// Sets the limits, after all input has been read. From here on the rendering may take 10 million steps plus 16 for each byte of input.
  /// Its values may hold 64 MiB at a time plus 32 bytes for each byte of input, in addition to the conversation itself.
  void begin();

  /// Uses up steps; fails if there are not enough. A step is the work for one value or node of the tree, about 0.1 µs.
  void spend(i64 steps = 1) {
    if (steps > steps_left_) fail_steps();
    steps_left_ -= steps;
  }
  /// Spends steps for bytes that are copied or compared: 256 bytes per step.
  void spend_bytes(size_t bytes) { spend(1 + static_cast<i64>(bytes / 256)); }
  /// Spends steps for a text that is read character by character or searched: 16 bytes per step.
  void spend_letters(size_t bytes) { spend(1 + static_cast<i64>(bytes / 16)); }

  /// Returns the bytes that the rendering's values, texts and scopes hold now.
  i64 held_bytes() const { return held_bytes_; }
  i64 steps_left() const { return steps_left_; }

  /// Returns a new, empty namespace, owned by this Run, because templates can form reference cycles of namespaces.
  Space* new_space();

  std::time_t now() const { return now_; }

  int line = 1;     // current line of the template
  i64 message = 0;  // number of the message, from 1; 0 outside the loop over messages

  /// One level of nested blocks and expressions, also across macro calls. Fails beyond 1000 levels, which fit on a thread's stack.
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

  // Makes `run` the current rendering of this thread for the lifetime of the object.
  class Current {
   public:
    explicit Current(Run* run);
    ~Current();
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;

   private:
    Run* outer_;
  };

  const Current current_;  // declared first so that it outlives everything charged to this Run
  const std::string& file_;
  std::time_t now_;
  int depth_ = 0;
  i64 read_bytes_ = 0, held_bytes_ = 0;
  i64 steps_, steps_left_, most_bytes_;  // steps and memory are unlimited until begin()
  List<std::unique_ptr<Space>> spaces_;
};

/// Throws Error(data): "[chat template] FILE, line N: what". A long message is cut.
[[noreturn]] void fail_at(const std::string& file, int line, const std::string& what);

}  // namespace spillway::data::chat
