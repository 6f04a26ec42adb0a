// lstm and gru for windows: "lstm1", "lstm2", ... (or "gru1", ...), each with the parameters of a
// torch::nn::LSTM (GRU) of one layer; dropout between them, as torch has it; a linear "head" that reads the
// last row's state. Sources: Hochreiter and Schmidhuber, 1997, doi.org/10.1162/neco.1997.9.8.1735, with
// forget gates; Cho et al., 2014, arxiv.org/abs/1406.1078.
#pragma once

#include "troika/train/models/registry.h"

namespace troika {

std::vector<Layer> make_lstm(const ModelRecipe& recipe, const ModelShape& shape);
std::vector<Layer> make_gru(const ModelRecipe& recipe, const ModelShape& shape);

}  // namespace troika
