themes(() => {});
follow();
