// Builds an option's Field from a pointer to a member of a configuration, such as
// integer(&TrainConfig::steps). The member may be a T, an optional<T> (empty until the user gives a
// value) or a vector<T> (for repeatable options). Only the files of the option table include this header.
#pragma once
#include <type_traits>
#include <utility>

#include "trainer/settings/option.h"
#include "trainer/settings/text.h"
#include "trainer/settings/value.h"

namespace spillway::trainer {

template <class M>
struct MemberOf {
  using Value = M;
  static constexpr bool optional = false, vector = false;
};
template <class T>
struct MemberOf<std::optional<T>> {
  using Value = T;
  static constexpr bool optional = true, vector = false;
};
template <class T>
struct MemberOf<std::vector<T>> {
  using Value = T;
  static constexpr bool optional = false, vector = true;
};

/// Points to a member of a struct that a configuration holds: nested(&ResourceConfig::placement, &PlacementSettings::prefetch).
template <class C, class P, class M>
struct Nested {
  Held<P> C::*outer;
  M P::*inner;
};
template <class C, class P, class M>
Nested<C, P, M> nested(Held<P> C::*outer, M P::*inner) {
  return {outer, inner};
}

/// Place resolves a pointer to a member, or a Nested. Owner is the type of the configuration,
/// Member is the type of the value, and of() returns the value in a given configuration.
template <class W>
struct Place;
template <class C, class M>
struct Place<M C::*> {
  using Owner = C;
  using Member = M;
  static auto& of(auto& config, M C::*member) { return config.*member; }
};
template <class C, class P, class M>
struct Place<Nested<C, P, M>> {
  using Owner = C;
  using Member = M;
  static auto& of(auto& config, Nested<C, P, M> where) { return *(config.*where.outer).*where.inner; }
};
template <class W>
using ValueAt = typename MemberOf<typename Place<W>::Member>::Value;

/// Returns the configuration held in `settings` as its base class C. Throws Error(bug) if the command's
/// configuration is not derived from C. The instances for the configurations of config.h are defined in option.cc.
template <class C>
C& part(Settings& settings);
template <class C>
const C& part(const Settings& settings);

/// Builds a Field for the member at `where`. read(value, what) must return what the member stores; it takes the Value as it was given, or
/// only its text. text_of() must return the text of what the member stores.
template <class W, class Read, class Print>
Field make_field(Kind kind, W where, Read read, Print text_of) {
  using C = typename Place<W>::Owner;
  using M = typename Place<W>::Member;
  using Member = MemberOf<M>;
  Field field{.kind = kind, .repeatable = Member::vector, .choices = {}, .set = nullptr, .get = nullptr};
  const auto stored = [read](const Value& value, const std::string& what) {
    if constexpr (std::is_invocable_v<Read, const Value&, const std::string&>) {
      return read(value, what);
    } else {
      return read(read_text(value, what), what);
    }
  };
  field.set = [where, stored](Settings& settings, const Value& value, const std::string& what) {
    M& member = Place<W>::of(part<C>(settings), where);
    if constexpr (Member::vector) {
      member.push_back(stored(value, what));
    } else {
      member = static_cast<typename Member::Value>(stored(value, what));
    }
  };
  field.get = [where, text_of](const Settings& settings) -> std::optional<std::vector<std::string>> {
    const M& value = Place<W>::of(part<C>(settings), where);
    if constexpr (Member::vector) {
      std::vector<std::string> texts;
      for (const auto& one : value) texts.push_back(text_of(one));
      return texts;
    } else if constexpr (Member::optional) {
      return value ? std::optional(std::vector{text_of(*value)}) : std::nullopt;
    } else {
      return std::vector{text_of(value)};
    }
  };
  return field;
}

template <class W>
Field text(W where) {
  return make_field(
      Kind::text, where, [](const std::string& t, const std::string&) { return t; }, [](const std::string& t) { return t; });
}
template <class W>
Field integer(W where) {
  return make_field(Kind::integer, where, read_integer, [](auto value) { return std::to_string(value); });
}
template <class W>
Field number(W where) {
  return make_field(Kind::number, where, read_number, print_number);
}
template <class W>
Field flag(W where) {
  return make_field(Kind::flag, where, read_flag, [](bool value) { return std::string(value ? "true" : "false"); });
}
template <class W>
Field size(W where) {
  return make_field(Kind::size, where, read_size, print_size);
}
template <class W>
Field duration(W where) {
  return make_field(Kind::duration, where, read_duration, print_duration);
}
template <class W, class Read, class Print>
Field composite(W where, Read read, Print text_of) {
  return make_field(Kind::composite, where, read, text_of);
}

/// Builds a Field whose text is one of the given names. Each name stands for one value.
template <class W, class E = ValueAt<W>>
Field choice(W where, std::initializer_list<std::pair<const char*, std::type_identity_t<E>>> names) {
  const std::vector<std::pair<std::string, E>> table(names.begin(), names.end());
  Field field = make_field(
      Kind::choice, where,
      [table](const std::string& text, const std::string& what) {
        for (const auto& [name, value] : table) {
          if (name == text) return value;
        }
        throw Error(ErrorCode::usage, "[" + what + "] got \"" + text + "\"");
      },
      [table](E value) {
        for (const auto& [name, named] : table) {
          if (named == value) return name;
        }
        return std::string("?");
      });
  for (const auto& [name, value] : table) field.choices.push_back(name);
  return field;
}

/// Builds a Field whose text is one of the given words and is stored as text.
template <class W>
Field word(W where, std::vector<std::string> words) {
  Field field = text(where);
  field.kind = Kind::choice;
  field.choices = std::move(words);
  return field;
}

/// Returns the Field of an option that no configuration stores.
inline Field no_field(Kind kind, bool repeatable = false) {
  return {.kind = kind, .repeatable = repeatable, .choices = {}, .set = nullptr, .get = nullptr};
}

template <class... Commands>
unsigned on(Commands... commands) {
  return ((1u << static_cast<unsigned>(commands)) | ...);
}
/// kTrain and kRuns are sets of commands that share options. Commands in kTrain take a training configuration, and commands in kRuns run a
/// model.
inline const unsigned kTrain = on(Command::train, Command::plan, Command::slurm);
inline const unsigned kRuns =
    on(Command::train, Command::plan, Command::generate, Command::chat, Command::evaluate, Command::classify, Command::slurm);
inline Range at_least(double low) { return {.low = low}; }
inline Range above(double low) { return {.low = low, .low_open = true}; }
inline Range fraction() { return {.low = 0, .high = 1, .high_open = true}; }

}  // namespace spillway::trainer
