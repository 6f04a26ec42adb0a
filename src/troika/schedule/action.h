// Action: one thing a lane does, and its short notation, the same in files, logs, errors and tests: `2F0` is
// stage 2, forward, micro-batch 0; `0SF0>2` sends that activation from stage 0 to stage 2 (docs/glossary.md).
// A value.
#pragma once

#include <array>
#include <compare>
#include <string>
#include <string_view>

namespace troika {

enum class Op {
  load,
  forward,
  recompute,  // the forward again, from the kept input, just before the backward
  backward,   // both parts
  backward_input,
  backward_weight,
  reduce_gradients,
  optimizer_step,
  send_activation,
  receive_activation,
  send_gradient,
  receive_gradient,
};

inline constexpr std::array kAllOps = {
    Op::load,
    Op::forward,
    Op::recompute,
    Op::backward,
    Op::backward_input,
    Op::backward_weight,
    Op::reduce_gradients,
    Op::optimizer_step,
    Op::send_activation,
    Op::receive_activation,
    Op::send_gradient,
    Op::receive_gradient,
};

/// The letters of the notation: L F C B I W R O SF RF SG RG.
std::string_view letters(Op op);

/// "forward", for legends and messages.
std::string_view name_of(Op op);

/// The model's own work: forward, recompute, backward or a part of it.
bool is_pass(Op op);

/// A backward or the part of it that another stage or an update waits for: B or I, B or W.
bool has_input_part(Op op);
bool has_weight_part(Op op);

/// R and O: of all micro-batches of an update.
bool is_whole_stage(Op op);

/// The four that name a peer, and the two of them that give.
bool is_message(Op op);
bool is_send(Op op);

struct Action {
  Op op = Op::forward;
  int stage = 0;
  // Of reduce_gradients and optimizer_step: which update of the window, 0 where there is one. Not printed: in
  // a lane the k-th one of a stage is update k.
  int micro_batch = 0;
  int peer = -1;  // of a message: the stage at its far end
  auto operator<=>(const Action&) const = default;
};

/// "2F0"; "2R" for an action of a whole stage; "0SF0>2" and "2RF0<0" for messages.
std::string to_string(const Action& action);

inline constexpr size_t kShownLetters = 40;  // of a user's text, in messages about it

/// to_string's inverse. Throws Error naming what was expected.
Action parse_action(std::string_view text);

}  // namespace troika
