// Action: one thing a lane does, and its short notation, the same in files, logs, errors and tests: `2F0` is
// stage 2, forward, micro-batch 0 (docs/glossary.md). A value.
#pragma once

#include <compare>
#include <string>

namespace troika {

enum class Op { load, forward, backward, reduce_gradients, optimizer_step };

/// The letter of the notation: L, F, B, R, O.
char letter(Op op);

/// "forward", for legends and messages.
const char* name_of(Op op);

struct Action {
  Op op = Op::forward;
  int stage = 0;
  int micro_batch = 0;  // 0 for the per-stage ones (reduce_gradients, optimizer_step), which print without it
  auto operator<=>(const Action&) const = default;
};

/// "2F0"; "2R" for an action of a whole stage.
std::string to_string(const Action& action);

/// to_string's inverse. Throws Error naming what was expected.
Action parse_action(const std::string& text);

}  // namespace troika
