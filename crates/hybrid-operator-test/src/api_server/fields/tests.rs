mod compared;
mod generate;
mod golden;
mod kinds;
mod samples;
mod server;
